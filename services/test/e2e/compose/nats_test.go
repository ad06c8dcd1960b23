package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
)

// root is the tree, from this package.
const root = "../../../.."

// configured returns a directory with the configuration of the bus and, with rights, the files that make secrets
// writes beside it, as docker-compose.yml mounts them.
func configured(t *testing.T, withRights bool) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"nats.conf", "tls.conf"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/nats", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if withRights {
		if _, err := trust.WriteFiles(dir, trust.Options{Store: filepath.Join(dir, "accounts")}); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SKANDHA_NATS_MONITOR", "127.0.0.1:8222")
	t.Setenv("SKANDHA_NATS_DATA", `"/a directory"`)
	return dir
}

// The bus of a deployment promises what the embedded one does.
func TestNATSConfigPromisesWhatTheEmbeddedServerDoes(t *testing.T) {
	o, err := server.ProcessConfigFile(filepath.Join(configured(t, true), "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || o.StoreDir != "/a directory" {
		t.Errorf("JetStream is on: %t, its directory is %q, want that of SKANDHA_NATS_DATA", o.JetStream, o.StoreDir)
	}
	if !o.SyncAlways {
		t.Error("sync_interval is not always: power loss could lose what was acknowledged")
	}
	if len(o.TrustedOperators) != 1 || o.SystemAccount == "" || o.AccountResolver == nil || o.Authorization != "" {
		t.Errorf("the bus trusts %d operators, its system account is %q, its token %q", len(o.TrustedOperators), o.SystemAccount,
			o.Authorization)
	}
	if o.HTTPHost != "127.0.0.1" || o.HTTPPort != 8222 {
		t.Errorf("monitoring listens on %s:%d, want that of SKANDHA_NATS_MONITOR", o.HTTPHost, o.HTTPPort)
	}
	if o.MaxPayload != natsserver.DefaultMaxPayload || o.JetStreamMaxMemory != natsserver.DefaultMaxMemory ||
		o.JetStreamMaxStore != natsserver.DefaultMaxStore {
		t.Errorf("max_payload %d, memory %d, file %d; want %d, %d, %d as embedded", o.MaxPayload, o.JetStreamMaxMemory,
			o.JetStreamMaxStore,
			natsserver.DefaultMaxPayload, natsserver.DefaultMaxMemory, int64(natsserver.DefaultMaxStore))
	}
}

// Without rights the server must not start open.
func TestNATSConfigNeedsRights(t *testing.T) {
	if o, err := server.ProcessConfigFile(filepath.Join(configured(t, false), "nats.conf")); err == nil {
		t.Errorf("the configuration loads without server.conf, with %d operators", len(o.TrustedOperators))
	}
}

package compose

import (
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"skandha.dev/services/internal/natsserver"
)

// root is the tree, from this package.
const root = "../../../.."

// The bus of a deployment promises what the embedded one does.
func TestNATSConfigPromisesWhatTheEmbeddedServerDoes(t *testing.T) {
	t.Setenv("SKANDHA_TOKEN", "s3cret-token")
	t.Setenv("SKANDHA_NATS_MONITOR", "127.0.0.1:8222")
	t.Setenv("SKANDHA_NATS_DATA", `"/a directory"`)
	o, err := server.ProcessConfigFile(root + "/deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || o.StoreDir != "/a directory" {
		t.Errorf("JetStream is on: %t, its directory is %q, want that of SKANDHA_NATS_DATA", o.JetStream, o.StoreDir)
	}
	if !o.SyncAlways {
		t.Error("sync_interval is not always: power loss could lose what was acknowledged")
	}
	if o.Authorization != "s3cret-token" {
		t.Errorf("the token is %q, want that of SKANDHA_TOKEN", o.Authorization)
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

// Without a token the server must not start open.
func TestNATSConfigNeedsAToken(t *testing.T) {
	t.Setenv("SKANDHA_NATS_MONITOR", "127.0.0.1:8222")
	t.Setenv("SKANDHA_NATS_DATA", `"/a directory"`)
	t.Setenv("SKANDHA_TOKEN", "") // comes back after the test
	if err := os.Unsetenv("SKANDHA_TOKEN"); err != nil {
		t.Fatal(err)
	}
	if o, err := server.ProcessConfigFile(root + "/deploy/nats/nats.conf"); err == nil {
		t.Errorf("the configuration loads without SKANDHA_TOKEN, with the token %q", o.Authorization)
	}
}

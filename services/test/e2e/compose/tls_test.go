package compose

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/certificate"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// overTLS runs a server with deploy/nats/tls.conf and the certificates of a directory.
func overTLS(t *testing.T, dir string) (address string, creds *bus.Credentials) {
	t.Helper()
	conf := configured(t, true)
	t.Setenv("SKANDHA_NATS_MONITOR", "127.0.0.1:-1")
	t.Setenv("SKANDHA_NATS_DATA", `"`+t.TempDir()+`"`)
	t.Setenv("SKANDHA_TLS_CERT", `"`+filepath.Join(dir, certificate.ServerFile)+`"`)
	t.Setenv("SKANDHA_TLS_KEY", `"`+filepath.Join(dir, certificate.ServerKeyFile)+`"`)
	o, err := server.ProcessConfigFile(filepath.Join(conf, "tls.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.TrustedOperators) != 1 || !o.JetStream {
		t.Error("with TLS the rest of the configuration is not that of nats.conf")
	}
	o.Host, o.Port, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	key, err := trust.ReadKey(filepath.Join(conf, "core.key"))
	if err == nil {
		creds, err = key.Credentials()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr().String(), creds
}

func certificates(t *testing.T, at time.Time, hosts ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tls")
	if err := certificate.Init(dir, certificate.Options{Hosts: hosts, Days: 30}, at); err != nil {
		t.Fatal(err)
	}
	return dir
}

// connect connects as services and the command do, and returns why it fails.
func connect(t *testing.T, url, ca string, creds *bus.Credentials) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{
		URL: url, Credentials: creds, TLS: bus.TLS{CA: ca}, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		b.Close()
	}
	return err
}

func TestTheBusSpeaksTLS(t *testing.T) {
	dir := certificates(t, time.Now(), "127.0.0.1")
	ca := filepath.Join(dir, certificate.CAFile)
	at, creds := overTLS(t, dir)
	for _, scheme := range []string{"tls://", "nats://"} {
		if err := connect(t, scheme+at, ca, creds); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	other := filepath.Join(certificates(t, time.Now(), "127.0.0.1"), certificate.CAFile)
	for name, c := range map[string]struct{ url, ca, want string }{
		"another authority": {"tls://" + at, other, "cannot be verified against " + other},
		"no authority":      {"nats://" + at, "", "name the bus's own with --tls-ca or SKANDHA_TLS_CA"},
		"another name":      {"tls://" + strings.Replace(at, "127.0.0.1", "localhost", 1), ca, "is for 127.0.0.1, not for localhost"},
	} {
		if why := certificate.Explain(connect(t, c.url, c.ca, creds), c.ca); !strings.Contains(why, c.want) {
			t.Errorf("%s: the reason is %q, want %q in it", name, why, c.want)
		}
	}
	if err := certificate.Renew(dir, certificate.Options{Days: 60}, time.Now()); err != nil {
		t.Fatal(err)
	}
	at, creds = overTLS(t, dir)
	if err := connect(t, "tls://"+at, ca, creds); err != nil {
		t.Errorf("with a new certificate by the same authority: %v", err)
	}
}

func TestACertificateThatHasExpired(t *testing.T) {
	dir := certificates(t, time.Now().AddDate(0, -3, 0), "127.0.0.1")
	ca := filepath.Join(dir, certificate.CAFile)
	at, creds := overTLS(t, dir)
	err := connect(t, "tls://"+at, ca, creds)
	if why := certificate.Explain(err, ca); !strings.Contains(why, "has expired on") {
		t.Errorf("the reason is %q (%v)", why, err)
	}
}

func TestABusWithoutTLSIsNotTakenForOneWithIt(t *testing.T) {
	ca := filepath.Join(certificates(t, time.Now(), "127.0.0.1"), certificate.CAFile)
	url := natstest.Start(t, natstest.WithTCP()).ClientURL()
	err := connect(t, url, ca, nil)
	if why := certificate.Explain(err, ca); !strings.Contains(why, "does not speak TLS") {
		t.Errorf("the reason is %q (%v)", why, err)
	}
}

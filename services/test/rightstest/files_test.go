package rightstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// serve starts a stock server with the files of a directory.
func serve(t *testing.T, dir, data string, port int) *server.Server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream {store_dir: %q, max_file_store: 64GB, max_memory_store: 256MB}\nmax_payload: 8MB\ninclude %q\n", port, data,
		relative(t, conf, filepath.Join(dir, trust.ServerFile)))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(filepath.Dir(from), to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// asCore connects a process of core with the key in its file.
func asCore(t *testing.T, url, dir string) *journal.Journal {
	t.Helper()
	c, err := trust.CredentialsOf("core", filepath.Join(dir, "core.key"))
	if err != nil {
		t.Fatal(err)
	}
	return natstest.Dial(t, bus.Config{URL: url, Name: "core", Credentials: c})
}

// Separate processes and a stock server work from the files of `skandha secrets`. A server that has lost
// its directory of accounts learns them again from core.
func TestAStockServerFromFiles(t *testing.T) {
	dir, data, store := t.TempDir(), t.TempDir(), t.TempDir()
	if _, err := trust.WriteFiles(dir, trust.Options{Store: store}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, data, -1)
	url := s.ClientURL()
	b := asCore(t, url, dir)
	natstest.EnsureStreams(t, b)
	who, err := core.Keys{File: filepath.Join(dir, trust.KeysFile), URL: url}.Identities(core.Deps{Bus: b, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(who.Start(natstest.Context(t)))
	page, err := who.Do(natstest.Context(t), coreapi.IdentitiesQuery{
		Op: coreapi.IdentityInvite, Bearer: true, Caller: "test",
		Charter: &rights.Charter{Name: "guest", Listeners: []subject.Writer{"guest"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := bus.Config{URL: url, Name: "guest", Token: page.Credentials.Token, Logger: quiet}
	say := func(b *journal.Journal) error {
		_, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "main", Session: "s"}, subject.Input, "guest", "",
			[]byte(`{"text":"hello"}`))
		return err
	}
	if err := say(natstest.Dial(t, at)); err != nil {
		t.Errorf("an invited listener: %v", err)
	}
	if again, err := trust.WriteFiles(dir, trust.Options{Store: store}); err != nil || len(again) > 0 {
		t.Errorf("writing the files again writes %v: %v", again, err)
	}
	operator := natstest.Dial(t, bus.Config{URL: url, Name: "operator", CredsFile: filepath.Join(dir, trust.CredsFile)})
	if operator.Identity() != trust.OperatorService || operator.Account() == "" || operator.Account() != b.Account() {
		t.Errorf("the operator is %s of account %q, core is of %q", operator.Identity(), operator.Account(), b.Account())
	}
	token, err := bus.BearerOf(filepath.Join(dir, trust.CredsFile))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Dial(t, bus.Config{URL: url, Name: "operator", Token: token})
	// The server starts again with the same files, and without what it knew of the guest.
	host := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscanf(host, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, data, port)
	natstest.Eventually(t, "the guest is known again", func() bool {
		b, err := journal.Connect(natstest.Context(t), at)
		if err != nil {
			return false
		}
		defer b.Close()
		return say(b) == nil
	})
}

// What a server without rights has stored is there with them, once it was adopted.
func TestAStockServerAdoptsWhatWasStoredWithoutRights(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	old := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.StoreDir = data }))
	b := natstest.Connect(t, old)
	natstest.EnsureStreams(t, b)
	if _, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "main", Session: "s"}, subject.Input, "tester", "",
		[]byte(`{"text":"hello"}`)); err != nil {
		t.Fatal(err)
	}
	b.Close()
	old.Shutdown()
	if _, err := trust.WriteFiles(dir, trust.Options{Store: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	a, err := trust.Read(filepath.Join(dir, trust.KeysFile))
	if err != nil {
		t.Fatal(err)
	}
	operator, err := a.Server()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // again it does nothing
		if moved, err := natsserver.Adopt(data, operator.Account); err != nil || moved != want {
			t.Errorf("moved: %t, %v, want %t", moved, err, want)
		}
	}
	s := serve(t, dir, data, -1)
	info, err := asCore(t, s.ClientURL(), dir).JetStream().Stream(natstest.Context(t), bus.StreamSessions)
	if err != nil || info.CachedInfo().State.Msgs != 1 {
		t.Errorf("the log has %+v, %v, want one message", info, err)
	}
	// Nothing is moved over what another account has stored.
	if err := os.Mkdir(filepath.Join(data, server.JetStreamStoreDir, "$G"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := natsserver.Adopt(data, operator.Account); err == nil || !strings.Contains(err.Error(), "both ") {
		t.Errorf("with both, adopting ends with %v", err)
	}
}

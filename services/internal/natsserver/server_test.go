package natsserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

var ref = subject.Ref{Agent: "ada", Session: "one"}

func TestServerListensOnNoPortByDefault(t *testing.T) {
	s := natstest.Start(t)
	if s.ClientURL() != "" {
		t.Errorf("listens on %s", s.ClientURL())
	}
	natstest.Connect(t, s)
}

func TestServerListensWhereItIsTold(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "127.0.0.1:-1", "localhost:0"} {
		s := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.Addr = addr }))
		nc, err := nats.Connect(s.ClientURL(), nats.Timeout(natstest.Patience))
		if err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		if nc.MaxPayload() != natsserver.DefaultMaxPayload {
			t.Errorf("max payload %d", nc.MaxPayload())
		}
		nc.Close()
	}
}

func TestConfigIsChecked(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		config natsserver.Config
		want   string
	}{
		{natsserver.Config{}, "nats.store_dir"},
		{natsserver.Config{StoreDir: dir, Sync: "sometimes"}, "nats.sync"},
		{natsserver.Config{StoreDir: dir, MaxPayload: 1 << 30}, "nats.max_payload"},
		{natsserver.Config{StoreDir: dir, MaxStore: -1}, "nats.max_store"},
		{natsserver.Config{StoreDir: dir, Addr: "4222"}, "nats.addr"},
		{natsserver.Config{StoreDir: dir, Addr: "127.0.0.1:http"}, "nats.addr"},
		{natsserver.Config{StoreDir: dir, Addr: "0.0.0.0:4222"}, "nats.token"},
		{natsserver.Config{StoreDir: dir, Addr: ":4222"}, "nats.token"},
		{natsserver.Config{StoreDir: dir, Addr: "192.168.1.1:4222"}, "nats.token"},
		{natsserver.Config{StoreDir: dir, Addr: "example.org:4222"}, "nats.token"},
	} {
		if s, err := natsserver.Start(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error that names %s", c.config, err, c.want)
			if s != nil {
				s.Shutdown()
			}
		}
	}
	for _, c := range []natsserver.Config{
		{StoreDir: dir, Addr: "127.0.0.1:4222"},
		{StoreDir: dir, Addr: "[::1]:4222"},
		{StoreDir: dir, Addr: ":4222", Token: "t"},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestTokenIsAskedFor(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP(), natstest.WithConfig(func(c *natsserver.Config) { c.Token = "secret" }))
	if nc, err := nats.Connect(s.ClientURL(), nats.Timeout(natstest.Patience)); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Errorf("without the token: %v, want an authorization error", err)
	}
	natstest.Dial(t, bus.Config{URL: s.ClientURL(), Token: s.Token()})
	natstest.Connect(t, s)
}

func TestPortInUseIsAnError(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(natstest.Context(t), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = natsserver.Start(natsserver.Config{
		StoreDir: t.TempDir(), Addr: l.Addr().String(), Logger: natstest.Logger(t),
	})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v, want an error that says the port is in use", err)
	}
}

func TestStoreDirThatCannotBeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := natsserver.Start(natsserver.Config{StoreDir: file, Logger: natstest.Logger(t)}); err == nil ||
		!strings.Contains(err.Error(), "store_dir") {
		t.Errorf("%v, want an error that names store_dir", err)
	}
}

func TestWhatIsStoredOutlivesTheServer(t *testing.T) {
	for _, sync := range []natsserver.Sync{natsserver.Always, natsserver.Relaxed} {
		dir := t.TempDir()
		inDir := natstest.WithConfig(func(c *natsserver.Config) { c.StoreDir, c.Sync = dir, sync })
		s := natstest.Start(t, inDir)
		b := natstest.Connect(t, s)
		seq, err := b.PublishCause(natstest.Context(t), ref, "input", "w", "", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		s.Shutdown()
		if s.Running() {
			t.Error("still running")
		}
		s.Shutdown() // again is harmless
		m, err := natstest.Connect(t, natstest.Start(t, inDir)).Message(natstest.Context(t), seq)
		if err != nil || string(m.Data) != "x" {
			t.Errorf("%s: %+v, %v", sync, m, err)
		}
	}
}

// buffer is a log that may be written by many.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestServerLogsThroughSlog(t *testing.T) {
	var log buffer
	s := natstest.Start(t, natstest.WithTCP(), natstest.WithConfig(func(c *natsserver.Config) {
		c.Token, c.Logger = "secret", slog.New(slog.NewJSONHandler(&log, nil))
	}))
	if nc, err := nats.Connect(s.ClientURL(), nats.Token("guess"), nats.Timeout(natstest.Patience)); err == nil {
		nc.Close()
	}
	natstest.Eventually(t, "the refusal in the log",
		func() bool { return strings.Contains(log.String(), "authentication error") })
	if out := log.String(); !strings.Contains(out, `"component":"nats-server"`) || strings.Contains(out, "guess") {
		t.Error(out)
	}
}

// A client cannot fill the log with what the server quotes.
func TestLongLinesOfTheServerAreCut(t *testing.T) {
	var log buffer
	s := natstest.Start(t, natstest.WithTCP(), natstest.WithConfig(func(c *natsserver.Config) {
		c.Token, c.Logger = "secret", slog.New(slog.NewJSONHandler(&log, nil))
	}))
	user := strings.Repeat("é", 1500)
	if nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "guess"), nats.Timeout(natstest.Patience)); err == nil {
		nc.Close()
	}
	natstest.Eventually(t, "the refusal in the log",
		func() bool { return strings.Contains(log.String(), "authentication error") })
	for line := range strings.Lines(log.String()) {
		var of struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &of); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(of.Msg, "authentication error") {
			continue
		}
		kept, left := strings.Count(of.Msg, "é"), 0
		if _, err := fmt.Sscanf(of.Msg[strings.Index(of.Msg, "… (")+len("…"):], " (%d more characters)", &left); err != nil {
			t.Fatalf("%v: %s", err, of.Msg)
		}
		if rest := kept + left - 1500; len(of.Msg) > 1100 || kept == 0 || rest < 0 || rest > 10 { // the rest is punctuation
			t.Errorf("%d characters of the name, and %d more, in %d bytes: %s", kept, left, len(of.Msg), of.Msg)
		}
	}
}

func TestManyServersInOneProcess(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 4 {
		s := natstest.Start(t)
		wg.Go(func() {
			b := natstest.Connect(t, s)
			if _, err := b.PublishCause(natstest.Context(t), ref, "input", "w", "", []byte(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestARestartKeepsAddressLogAndClients(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP())
	inside, outside := natstest.Connect(t, s), natstest.ConnectURL(t, s.ClientURL())
	seq, err := inside.PublishCause(natstest.Context(t), ref, "input", "w", "", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	before := s.ClientURL()
	for range 2 {
		if err := s.Restart(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if s.ClientURL() != before || !s.Running() {
		t.Errorf("it runs: %v, at %s; it was at %s", s.Running(), s.ClientURL(), before)
	}
	for name, b := range map[string]*journal.Journal{"inside": inside, "outside": outside} {
		// It may not have seen yet that its connection was lost.
		var m bus.StoredMsg
		natstest.Eventually(t, name+" reads again", func() bool {
			m, err = b.Message(natstest.Context(t), seq)
			return err == nil
		})
		if string(m.Data) != "x" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	s.Shutdown()
	if err := s.Restart(0); err == nil || s.Running() {
		t.Errorf("it was shut down, and runs again: %v", err)
	}
}

// While the server is away somebody may be given its port, for a moment.
func TestARestartWaitsForItsPort(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP())
	u, err := url.Parse(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	for { // until somebody is
		done := make(chan error, 1)
		go func() { done <- s.Restart(100 * time.Millisecond) }()
		l, err := snatch(t, u.Host, done)
		if l != nil {
			time.AfterFunc(300*time.Millisecond, func() { _ = l.Close() })
			err = <-done
		}
		if err != nil {
			t.Fatal(err)
		}
		if l != nil {
			return
		}
	}
}

// snatch listens on the server's address while it restarts. It returns nil when
// the restart is over and nobody was faster than the server; then err is what
// became of that.
func snatch(t *testing.T, addr string, over <-chan error) (net.Listener, error) {
	t.Helper()
	for {
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr); err == nil {
			return l, nil
		}
		select {
		case err := <-over:
			return nil, err
		default:
		}
	}
}

// Two servers on one directory would lose each other's messages.
func TestADirectoryHasOneServer(t *testing.T) {
	dir := t.TempDir()
	c := natsserver.Config{StoreDir: dir, Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	first, err := natsserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Shutdown()
	if s, err := natsserver.Start(c); !errors.Is(err, natsserver.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second one: %v, %v", s, err)
	}
	first.Shutdown()
	again, err := natsserver.Start(c)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	again.Shutdown()
}

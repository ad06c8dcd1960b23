package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redis"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/redistest"
	"skandha.dev/services/test/storetest"
)

func TestStore(t *testing.T) {
	url := redistest.Start(t)
	prefix := prefixes()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, url, prefix()) })
}

func TestReopen(t *testing.T) {
	url := redistest.Start(t)
	prefix := prefixes()
	storetest.RunReopen(t, func(t *testing.T) func() store.Store {
		place := prefix()
		return func() store.Store { return open(t, url, place) }
	})
}

// The whole suite on a cluster shows that no call spans slots.
func TestCluster(t *testing.T) {
	url := redistest.StartCluster(t)
	prefix := prefixes()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, url, prefix()) })
}

// A store that finds its server by Sentinel has the same guarantees, and goes on with the
// replica when the master is killed.
func TestSentinel(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	prefix := prefixes()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, sentinel.URL, prefix()) })

	s := open(t, sentinel.URL, "failover:")
	if err := s.SetMark(t.Context(), "floor", 7); err != nil {
		t.Fatal(err)
	}
	replica := raw(t, sentinel.Replica)
	natstest.Eventually(t, "the replica has the mark", func() bool {
		v, err := replica.HGet(t.Context(), "failover:marks", "floor").Result()
		return err == nil && v == "7"
	})
	sentinels := goredis.NewSentinelClient(raw(t, sentinel.URL[:strings.IndexByte(sentinel.URL, '?')]).Options())
	t.Cleanup(func() { _ = sentinels.Close() })
	natstest.Eventually(t, "the sentinel knows the replica", func() bool {
		known, err := sentinels.Replicas(t.Context(), "main").Result()
		return err == nil && len(known) == 1 && known[0]["flags"] == "slave" && known[0]["master-link-status"] == "ok"
	})
	sentinel.KillMaster()
	natstest.Eventually(t, "the replica takes writes", func() bool { return s.SetMark(t.Context(), "after", 8) == nil })
	marks := map[string]uint64{"floor": 7, "after": 8}
	for name, want := range marks {
		if is, err := s.Mark(t.Context(), name); err != nil || is != want {
			t.Errorf("after the failover the mark %s is %d, %v; want %d", name, is, err, want)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	url := redistest.Start(b)
	prefix := prefixes()
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b, url, prefix()) })
}

// prefixes gives each store its own, all of them beginning alike and with
// characters that SCAN's patterns know.
func prefixes() func() string {
	n := 0
	return func() string {
		n++
		return "test" + strings.Repeat(":?*[a]\\", n)
	}
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

func open(tb testing.TB, url, prefix string) *redis.Store {
	tb.Helper()
	s, err := redis.Open(redis.Config{URL: url, Prefix: prefix, Timeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// record records one use of the tool x.
func record(t *testing.T, s *redis.Store, k store.Key, rev uint64) error {
	t.Helper()
	_, err := s.RecordTools(t.Context(),
		[]store.ToolRecord{{Key: k, Rev: rev, Deltas: []store.ToolDelta{{Tool: "x", Used: 1}}}})
	return err
}

func raw(t *testing.T, url string) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestWipeRemovesNothingOfOthers(t *testing.T) {
	url := redistest.Start(t)
	c := raw(t, url)
	others := []string{
		"skandha", "skandha:x", "skandha:agent", "skandha:sub:{a}:session:s", "other:{a}:tools", "{a}:sessions",
		"skandha:sub:agents",
	}
	for _, k := range others {
		if err := c.Set(t.Context(), k, "theirs", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, url, "")
	for i := range 2500 { // more than one SCAN
		k := store.Key{Agent: fmt.Sprint("agent", i%3), Session: fmt.Sprint(i)}
		if err := s.SaveSnapshot(t.Context(), k, store.Snapshot{Rev: 1}); err != nil {
			t.Fatal(err)
		}
	}
	k := store.Key{Agent: "a", Session: "s"}
	if err := errors.Join(
		record(t, s, k, 1),
		s.SetMark(t.Context(), "floor", 1),
		s.Wipe(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	left, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(others) {
		t.Errorf("left %q, want %q", left, others)
	}
	for _, k := range others {
		if v, err := c.Get(t.Context(), k).Result(); err != nil || v != "theirs" {
			t.Errorf("%s is now %q, %v", k, v, err)
		}
	}
}

// A server that forgot the scripts, after a restart or SCRIPT FLUSH, gets them
// again.
func TestScriptsAreLoadedAgain(t *testing.T) {
	url := redistest.Start(t)
	c, s := raw(t, url), open(t, url, "")
	k := store.Key{Agent: "a", Session: "s"}
	for rev := uint64(1); rev <= 2; rev++ {
		if err := errors.Join(
			c.ScriptFlush(t.Context()).Err(),
			s.SaveSnapshot(t.Context(), k, store.Snapshot{Rev: rev}),
			record(t, s, k, rev),
			s.SetMark(t.Context(), "floor", rev),
		); err != nil {
			t.Fatal(err)
		}
	}
	if stats, err := s.ToolStats(t.Context()); err != nil || len(stats) != 1 || stats[0].Used != 2 {
		t.Errorf("statistics %+v, %v", stats, err)
	}
}

// ping opens a store, which must work whatever the server does, and uses it.
func ping(t *testing.T, url string) error {
	t.Helper()
	s, err := redis.Open(redis.Config{URL: url, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(s.Ping(t.Context()), s.Close())
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "?cluster=true"} {
		err := ping(t, "redis://user:hunter2@"+addr+suffix)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
			t.Errorf("error is %v", err)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

// rediss:// means TLS with a certificate that is checked.
func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // anything with a certificate nobody trusts
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	err := ping(t, "rediss://"+server.Listener.Addr().String())
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error is %v", err)
	}
}

func TestWrongPassword(t *testing.T) {
	url := strings.Replace(redistest.Start(t), redistest.Password, "hunter2", 1)
	err := ping(t, url)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v", err)
	}
}

// A server that hangs costs a caller its deadline, not more: the store's own
// timeout is as long as the test's patience.
func TestDeadlineOnHangingServer(t *testing.T) {
	url := redistest.Start(t)
	c, s := raw(t, url), open(t, url, "")
	if err := c.Do(t.Context(), "CLIENT", "PAUSE", 2*patience.Milliseconds(), "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := s.LoadSnapshot(ctx, store.Key{Agent: "a", Session: "s"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

func TestInvalidConfig(t *testing.T) {
	for _, cfg := range []redis.Config{
		{},
		{URL: "http://localhost"},
		{URL: "redis://user:hunter2@local host:1:2"},
		{URL: "redis://user:hunter2@localhost/x"},
		{URL: "redis://user:hunter2@localhost?colour=red"},
		{URL: "redis://user:hunter2@localhost?cluster=perhaps"},
		{URL: "redis://user:hunter2@localhost?master_name="},
		{URL: "redis://user:hunter2@localhost?master_name=main&cluster=true"},
		{URL: "redis://user:hunter2@localhost?master_name=main&password=hunter2&unheard=of"},
		{URL: "redis://localhost?prefix={a}"},
		{URL: "redis://localhost", Prefix: "a{"},
	} {
		_, err := redis.Open(cfg)
		if !errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: error is %v", cfg, err)
		}
	}
}

func TestPrefixFromURL(t *testing.T) {
	url := redistest.Start(t)
	s, err := redis.Open(redis.Config{URL: url + "?prefix=acme:&read_timeout=1m", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetMark(t.Context(), "floor", 7); err != nil {
		t.Fatal(err)
	}
	if v, err := raw(t, url).HGet(t.Context(), "acme:marks", "floor").Result(); err != nil || v != "7" {
		t.Errorf("acme:marks holds %q, %v", v, err)
	}
}

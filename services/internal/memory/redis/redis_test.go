package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"skandha.dev/pkg/memory"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/redis"
	"skandha.dev/services/test/memorytest"
	"skandha.dev/services/test/redistest"
)

func TestStore(t *testing.T) {
	url := redistest.Start(t)
	prefix := prefixes()
	memorytest.Run(t, func(t *testing.T) index.Store { return open(t, url, prefix()) })
}

func TestReopen(t *testing.T) {
	url := redistest.Start(t)
	prefix := prefixes()
	memorytest.RunReopen(t, func(t *testing.T) func() index.Store {
		place := prefix()
		return func() index.Store { return open(t, url, place) }
	})
}

// The whole suite on a cluster shows that no call spans slots.
func TestCluster(t *testing.T) {
	url := redistest.StartCluster(t)
	prefix := prefixes()
	memorytest.Run(t, func(t *testing.T) index.Store { return open(t, url, prefix()) })
}

func TestOutage(t *testing.T) {
	url, start := redistest.Later(t)
	kill := start()
	memorytest.RunOutage(t, open(t, url, ""), kill, func() { start() })
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

func open(tb testing.TB, url, prefix string) *redis.Store {
	tb.Helper()
	s, err := redis.Open(redis.Config{URL: url, Prefix: prefix, Timeout: time.Minute})
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

var tea = index.Entry{Revision: 7, Memory: memory.Memory{
	ID: "m1", Agent: "main", Kind: memory.Fact, Text: "Ann likes tea", Source: memory.Source{Origin: memory.FromPerson},
}, Model: "m", Vector: []float32{1, 0}}

// What cannot be read is removed, and the position says so.
func TestDamage(t *testing.T) {
	url := redistest.Start(t)
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	raw := goredis.NewClient(o)
	defer raw.Close()
	for n, command := range [][]any{
		{"SET", "{main}:revisions", "x"},
		{"SET", "{main}:changes", "x"},
		{"SET", "{main}:vectors", "x"},
		{"SET", "models", "x"},
		{"SET", "{main}:changed", "x"},
		{"LPUSH", "{main}:epoch", "x"},
		{"HSET", "{main}:revisions", "m1", "x"},
		{"HSET", "{main}:memories", "m1", "x"},
		{"HSET", "{main}:vectors", "m1", "x"},
		{"HDEL", "{main}:memories", "m1"},
	} {
		prefix := fmt.Sprintf("damage%d:", n)
		s := open(t, url, prefix)
		if err := errors.Join(s.Put(t.Context(), []index.Entry{tea}), s.SetPosition(t.Context(), 7)); err != nil {
			t.Fatal(err)
		}
		key := prefix + command[1].(string)
		command[1] = key
		if command[0] != "HSET" && command[0] != "HDEL" {
			raw.Del(t.Context(), key)
		}
		if err := raw.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		s = open(t, url, prefix) // one that has not read it before
		_, err := s.Search(t.Context(), index.Query{Agent: "main", Text: "tea", Vector: tea.Vector, Model: "m"})
		at, positionErr := s.Position(t.Context())
		if err := errors.Join(err, positionErr); err != nil || at != 0 {
			t.Errorf("%v: position %d, %v", command, at, err)
		}
		if err := s.Put(t.Context(), []index.Entry{tea}); err != nil {
			t.Errorf("%v: %v", command, err)
		}
		if e, err := s.Get(t.Context(), tea.Key()); err != nil || e.Text != tea.Text || e.Model != "m" {
			t.Errorf("%v: got %+v, %v", command, e, err)
		}
	}
}

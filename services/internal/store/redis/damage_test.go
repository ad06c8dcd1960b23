package redis_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redis"
	"skandha.dev/services/test/redistest"
)

// Unreadable values are removed, logged once with their name, and the coverage with
// them. Everything else stays, and writing again repairs them.
func TestDamagedKeysAreRemoved(t *testing.T) {
	url := redistest.Start(t)
	c := raw(t, url)
	const tools, counted, s1, list = "skandha:{a}:tools", "skandha:{a}:counted", "skandha:{a}:session:1",
		"skandha:{a}:sessions"
	for _, d := range []struct {
		name    string
		damage  [][]any
		removed string // named in the log
	}{
		{"tools, no number", [][]any{{"HSET", tools, "used:x", "many"}}, tools},
		{"tools, unknown field", [][]any{{"HSET", tools, "stray", "1"}}, tools},
		{"tools, another number", [][]any{{"HSET", tools, "used:x", "4711"}}, tools},
		{"tools, too large", [][]any{{"HSET", tools, "used:x", "9223372036854775807"}}, tools},
		{"tools, gone", [][]any{{"DEL", tools}}, counted},
		{"tools, another type", [][]any{{"DEL", tools}, {"SET", tools, "x"}}, tools},
		{"revisions, no number", [][]any{{"HSET", counted, "rev:1", "last"}}, counted},
		{"revisions, a sum that is none", [][]any{{"HSET", counted, "sum:1", "all"}}, counted},
		{"revisions, gone", [][]any{{"DEL", counted}}, tools},
		{"revisions, another type", [][]any{{"DEL", counted}, {"RPUSH", counted, "x"}}, counted},
		{"snapshot, another type", [][]any{{"DEL", s1}, {"SET", s1, "x"}}, s1},
		{"snapshot, half", [][]any{{"HDEL", s1, "rev"}}, s1},
		{"snapshot, no number", [][]any{{"HSET", s1, "rev", "latest"}}, s1},
		{"list, another type", [][]any{{"DEL", list}, {"SET", list, "x"}}, list},
		{"agents, another type", [][]any{{"DEL", "skandha:agents"}, {"SET", "skandha:agents", "x"}}, "skandha:agents"},
		{"marks, another type", [][]any{{"DEL", "skandha:marks"}, {"SET", "skandha:marks", "x"}}, "skandha:marks"},
		{"marks, no number", [][]any{{"HSET", "skandha:marks", "floor", "x"}}, "skandha:marks"},
		{"coverage, another type", [][]any{{"DEL", "skandha:coverage"}, {"RPUSH", "skandha:coverage", "x"}}, ""},
		{"lease, another type", [][]any{{"DEL", "skandha:lease"}, {"SET", "skandha:lease", "x"}}, "skandha:lease"},
	} {
		t.Run(d.name, func(t *testing.T) {
			must(t, c.FlushAll(t.Context()).Err())
			var log bytes.Buffer
			s, err := redis.Open(redis.Config{URL: url, Timeout: patience, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			must(t, err)
			defer func() { must(t, s.Close()) }()
			fill(t, s)
			must(t, s.SetCoverage(t.Context(), "all"))
			for _, command := range d.damage {
				must(t, c.Do(t.Context(), command...).Err())
			}
			touch(t, s)
			if what, err := s.Coverage(t.Context()); err != nil || what != "" {
				t.Errorf("it covers %q, %v", what, err)
			}
			if got := log.String(); d.removed != "" &&
				(strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, d.removed)) {
				t.Errorf("logged %q, want one line that names %s", got, d.removed)
			}
			fill(t, s)
			touch(t, s)
			stats, err := s.ToolStats(t.Context())
			if err != nil || len(stats) != 1 || stats[0].Used != 2 {
				t.Errorf("statistics %+v, %v", stats, err)
			}
			if page, _, err := s.ListSessions(t.Context(), "", 9, ""); err != nil || len(page) != 2 {
				t.Errorf("list %+v, %v", page, err)
			}
		})
	}
}

// fill writes all of two sessions.
func fill(t *testing.T, s *redis.Store) {
	t.Helper()
	for _, k := range []store.Key{{Agent: "a", Session: "1"}, {Agent: "a", Session: "2"}} {
		must(t, s.SaveSnapshot(t.Context(), k, store.Snapshot{Rev: 5, Commits: 5}))
		must(t, record(t, s, k, 5))
	}
	must(t, s.SetMark(t.Context(), "floor", 3))
}

// touch reads everything.
func touch(t *testing.T, s *redis.Store) {
	t.Helper()
	_, err := s.VerifyTools(t.Context())
	must(t, err)
	_, err = s.ToolStats(t.Context())
	must(t, err)
	_, err = s.Heads(t.Context(), []store.Key{{Agent: "a", Session: "1"}, {Agent: "a", Session: "2"}})
	must(t, err)
	_, _, err = s.ListSessions(t.Context(), "", 9, "")
	must(t, err)
	_, err = s.Mark(t.Context(), "floor")
	must(t, err)
	_, err = s.Lease(t.Context(), store.Lease{Holder: "me"}, patience)
	must(t, err)
}

// Damage that a write meets first does not stop the write.
func TestDamagedKeysAreOverwritten(t *testing.T) {
	url := redistest.Start(t)
	c, s := raw(t, url), open(t, url, "")
	for _, command := range [][]any{
		{"HSET", "skandha:{a}:tools", "used:x", "many"},
		{"SET", "skandha:{a}:session:1", "x"},
		{"HSET", "skandha:{a}:session:2", "rev", "9", "fold", "x"},
		{"SET", "skandha:{a}:sessions", "x"},
		{"SET", "skandha:agents", "x"},
		{"SET", "skandha:marks", "x"},
		{"RPUSH", "skandha:coverage", "x"},
	} {
		must(t, c.Do(t.Context(), command...).Err())
	}
	fill(t, s)
	must(t, s.SetCoverage(t.Context(), "all"))
	touch(t, s)
	if what, err := s.Coverage(t.Context()); err != nil || what != "all" {
		t.Errorf("it covers %q, %v", what, err)
	}
	if page, _, err := s.ListSessions(t.Context(), "", 9, ""); err != nil || len(page) != 2 {
		t.Errorf("list %+v, %v", page, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

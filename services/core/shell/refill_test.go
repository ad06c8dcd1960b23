package shell_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redis"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/redistest"
)

// viewed is a system whose view is inspected and damaged.
type viewed struct {
	*system
	view store.Store
	open func() store.Store
}

const (
	viewSessions = 9
	viewCalls    = 2 // of a tool in each session
)

// startViewed runs some turns with tools and waits until the view has them.
func startViewed(t *testing.T, open func() store.Store) *viewed {
	s := start(t, core.Config{})
	s.stopCore()
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(
				provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)},
				provider.ToolCall{ID: "2", Tool: "test:once", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	v := &viewed{system: s, view: open(), open: open}
	v.run(v.view)
	for i := range viewSessions {
		v.turn(subject.Session(fmt.Sprintf("s%d", i)))
	}
	v.await(t, viewSessions, viewSessions*viewCalls)
	return v
}

// fileView returns a new view in a file.
func fileView(t *testing.T) store.Store {
	st, err := sqlite.Open(t.Context(),
		sqlite.Config{Path: filepath.Join(t.TempDir(), "view.db"), Logger: natstest.Logger(t)})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// run starts one more core on a store.
func (v *viewed) run(st store.Store) *shell.Core {
	b := natstest.Connect(v.t, v.srv)
	c, err := core.New(core.Config{}, core.Options{Drain: 100 * time.Millisecond, Compare: 200 * time.Millisecond},
		core.Deps{Bus: b, Store: st, Log: natstest.Logger(v.t)})
	if err != nil {
		v.t.Fatal(err)
	}
	v.stopCore = v.background("core", c.Run)
	if err := c.AwaitReady(natstest.Context(v.t)); err != nil {
		v.t.Fatal(err)
	}
	return c
}

func (v *viewed) turn(session subject.Session) {
	ref := subject.Ref{Agent: "main", Session: session}
	ch := v.follow(ref)
	v.say(ref, event.Input{Text: "go " + string(session)})
	v.system.await(ch, event.TypeRecorded)
}

// await waits until the view holds the sessions and the calls, none as it was during a turn, and
// reports complete.
func (v *viewed) await(t *testing.T, sessions int, used int64) {
	t.Helper()
	natstest.Eventually(t, fmt.Sprintf("%d sessions, %d calls, complete", sessions, used), func() bool {
		now, err := v.contents(t.Context())
		n := int64(0)
		for _, s := range now.Tools {
			n += s.Used
		}
		busy := slices.ContainsFunc(now.Listed, func(s store.SessionInfo) bool {
			return s.Phase != string(event.StateWaiting)
		})
		view := v.ask(t).View
		return err == nil && len(now.Snapshots) == sessions && n == used && !busy &&
			view.State == coreapi.ViewComplete && view.Sessions == sessions
	})
}

func (v *viewed) ask(t *testing.T) (st coreapi.Status) {
	t.Helper()
	caller, err := v.bus.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	m, err := caller.Request(natstest.Context(t), subject.Service(coreapi.ServiceName, coreapi.VerbStatus),
		coreapi.ServiceName, nil)
	if err == nil {
		err = json.Unmarshal(m, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// contents is all that a view returns.
type contents struct {
	Listed    []store.SessionInfo
	Tools     []store.ToolStat
	Heads     []store.Head
	Snapshots map[store.Key]store.Snapshot
}

func (v *viewed) contents(ctx context.Context) (c contents, err error) {
	var errs [3]error
	c.Listed, _, errs[0] = v.view.ListSessions(ctx, "", 100, "")
	c.Tools, errs[1] = v.view.ToolStats(ctx)
	var keys []store.Key
	for _, s := range c.Listed {
		keys = append(keys, s.Key)
	}
	c.Heads, errs[2] = v.view.Heads(ctx, keys)
	c.Snapshots = map[store.Key]store.Snapshot{}
	for _, s := range c.Listed {
		snap, err := v.view.LoadSnapshot(ctx, s.Key)
		if err != nil {
			return c, err
		}
		c.Snapshots[s.Key] = snap
	}
	return c, errors.Join(errs[:]...)
}

// heals damages the view and waits until it is what it was, without any input.
func (v *viewed) heals(t *testing.T, damage func(t *testing.T)) {
	t.Helper()
	before, err := v.contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	damage(t)
	var now contents
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("before %+v\nnow    %+v, %v", brief(before), brief(now), err)
		}
	})
	natstest.Eventually(t, "the view is what it was", func() bool {
		now, err = v.contents(t.Context())
		return err == nil && reflect.DeepEqual(before, now) && v.ask(t).View.State == coreapi.ViewComplete
	})
}

func brief(c contents) contents {
	c.Snapshots = nil
	return c
}

func (v *viewed) heal(t *testing.T, damages map[string]func(t *testing.T)) {
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		t.Run(name, func(t *testing.T) { v.heals(t, damages[name]) })
	}
}

func TestTheViewComesBackInSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "view", "view.db")
	v := startViewed(t, func() store.Store {
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	})
	execute := func(statement string) func(t *testing.T) {
		return func(t *testing.T) {
			db, err := sql.Open("sqlite", path)
			if err == nil {
				defer func() { _ = db.Close() }()
				_, err = db.ExecContext(t.Context(), "PRAGMA busy_timeout = 10000; "+statement)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	v.heal(t, map[string]func(t *testing.T){
		"file deleted":            func(t *testing.T) { must(t, os.Remove(path)) },
		"replaced by garbage":     func(t *testing.T) { replace(t, path, []byte("garbage")) },
		"replaced by an old copy": func(t *testing.T) { replace(t, path, nil) },
		"half of the sessions":    execute("DELETE FROM session WHERE session < 's5'"),
		"garbage in a snapshot":   execute("UPDATE session SET data = x'00ff' WHERE session = 's3'"),
		"statistics gone":         execute("DELETE FROM tool"),
		"everything": execute(
			"DELETE FROM session; DELETE FROM tool; DELETE FROM recorded; DELETE FROM mark; DELETE FROM coverage"),
	})
	t.Run("deleted while no core runs", func(t *testing.T) {
		v.heals(t, func(t *testing.T) {
			v.stopCore()
			must(t, errors.Join(v.view.Close(), os.Remove(path)))
			v.view = v.open()
			v.run(v.view)
		})
	})
}

func TestTheViewComesBackInRedis(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	open := func() store.Store {
		st, err := redis.Open(redis.Config{URL: url, Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	v := startViewed(t, open)
	v.run(open()) // one more core
	o, err := goredis.ParseURL(url)
	must(t, err)
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	do := func(args ...any) func(t *testing.T) {
		return func(t *testing.T) { must(t, c.Do(t.Context(), args...).Err()) }
	}
	const tools, s3 = "skandha:{main}:tools", "skandha:{main}:session:s3"
	v.heal(t, map[string]func(t *testing.T){
		"everything": do("FLUSHALL"),
		"half of the keys": func(t *testing.T) {
			keys, err := c.Keys(t.Context(), "*").Result()
			must(t, err)
			slices.Sort(keys)
			for i := 0; i < len(keys); i += 2 {
				must(t, c.Del(t.Context(), keys[i]).Err())
			}
		},
		"no number in the statistics": do("HSET", tools, "used:test:do", "many"),
		"statistics gone":             do("DEL", tools),
		"statistics of another type":  func(t *testing.T) { do("DEL", tools)(t); do("SET", tools, "x")(t) },
		"garbage in a snapshot":       do("HSET", s3, "data", "\x00garbage"),
		"the list gone":               do("DEL", "skandha:{main}:sessions"),
		"all figures of another server": do("MSET", "skandha:coverage",
			`{"state":"complete","log":"of another day","fold":1}`, tools, "x"),
	})
	t.Run("wiped while no core runs", func(t *testing.T) {
		v.heals(t, func(t *testing.T) {
			v.stopCore()
			do("FLUSHALL")(t)
			v.run(open())
		})
	})
	t.Run("wiped while turns run", func(t *testing.T) {
		for i := range viewSessions {
			if i%3 == 1 {
				do("FLUSHALL")(t)
			}
			v.turn(subject.Session(fmt.Sprintf("s%d", i)))
		}
		v.await(t, viewSessions, 2*viewSessions*viewCalls)
	})
	t.Run("full for a while", func(t *testing.T) {
		do("CONFIG", "SET", "maxmemory", "1")(t)
		for i := range viewSessions {
			v.turn(subject.Session(fmt.Sprintf("s%d", i)))
		}
		natstest.Eventually(t, "status reports it", func() bool { return v.ask(t).View.State == coreapi.ViewUnavailable })
		do("CONFIG", "SET", "maxmemory", "0")(t)
		v.await(t, viewSessions, 3*viewSessions*viewCalls)
	})
}

// What one core requests, another may do: the one that holds the lease.
func TestASessionIsWrittenToTheViewOnDemand(t *testing.T) {
	t.Parallel()
	v := startViewed(t, func() store.Store { return fileView(t) })
	caller, err := v.bus.NewCaller()
	must(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	ask := func(q coreapi.RefillQuery) (a coreapi.RefillAnswer, err error) {
		body, err := json.Marshal(q)
		must(t, err)
		m, err := caller.Request(natstest.Context(t), subject.Service(coreapi.AdminName, coreapi.VerbRefill),
			coreapi.AdminName, body)
		if err == nil {
			err = json.Unmarshal(m, &a)
		}
		return a, err
	}
	v.heals(t, func(t *testing.T) {
		k := store.Key{Agent: "main", Session: "s1"}
		before, err := v.view.LoadSnapshot(t.Context(), k)
		must(t, err)
		must(t, v.view.DeleteSession(t.Context(), k))
		a, err := ask(coreapi.RefillQuery{Agent: "main", Session: "s1"})
		must(t, err)
		after, err := v.view.LoadSnapshot(t.Context(), k)
		must(t, err)
		if a.Revision != before.Rev || !reflect.DeepEqual(before, after) {
			t.Errorf("%+v, %+v; want %+v", a, after, before)
		}
		_, err = ask(coreapi.RefillQuery{All: true})
		must(t, err)
	})
	if _, err := ask(coreapi.RefillQuery{Agent: "main", Session: "nobody"}); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a session that is not there: %v", err)
	}
}

// What a killed core has not written, the next one finds at its start, although the lease of the
// dead one goes on.
func TestACoreThatStartsFindsWhatAnotherHasNotWritten(t *testing.T) {
	t.Parallel()
	v := startViewed(t, func() store.Store { return fileView(t) })
	v.stopCore()
	k := store.Key{Agent: "main", Session: "s1"}
	must(t, v.view.DeleteSession(t.Context(), k))
	_, err := v.view.Lease(t.Context(), store.Lease{Holder: "dead"}, time.Hour)
	must(t, err)
	v.run(v.view)
	natstest.Eventually(t, "the session is listed again", func() bool {
		_, err := v.view.LoadSnapshot(t.Context(), k)
		return err == nil
	})
}

// replace atomically replaces a file; nil: by an older copy of the view.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if data == nil {
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path + ".new", Logger: natstest.Logger(t)})
		must(t, err)
		must(t, cmp.Or(st.SetCoverage(t.Context(), `{"state":"complete","log":"of another day","fold":1}`), st.Close()))
	} else {
		must(t, os.WriteFile(path+".new", data, 0o600))
	}
	must(t, os.Rename(path+".new", path))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package e2etest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// Options say what a system consists of.
type Options struct {
	Cores, Providers, Runners int    // default 1 each; negative: none
	Nodes                     int    // NATS servers, a cluster if more than one; default 1
	Config                    string // YAML of the cores; the policy of [Policy] if empty
	Store                     string // of all cores; empty: a SQLite file for each
	Drain                     time.Duration
	Slots                     int  // of an executor; default 64
	Relaxed                   bool // the bus syncs what it stores now and then
	Retain                    bool // only the latest turn of a session stays in the log; see [settle]
	// Whole adds the other processes of a deployment: the real tool runners, with the
	// tools in a plugin, one view in Redis, a UI bridge and a listener.
	Whole         bool
	ProviderSlots int // default Slots
	// DiskMiB is the size of a separate file system for the data of the first NATS
	// server; 0: none. See [natstest.SmallDisk].
	DiskMiB int
	// Routed makes the ways between the servers of a cluster cuttable: see [System.Isolate].
	Routed bool
	// URL may send a process to the bus another way; nil, or "" from it: straight.
	URL func(r Role, straight string) string
}

// System is a NATS server, cores, providers and runners, each a process.
type System struct {
	T                         testing.TB
	Dir                       string
	URL                       string
	NATS                      *Proc   // the first of Nodes
	Nodes                     []*Proc // NATS servers
	Cores, Providers, Runners []*Proc
	Others                    []*Proc          // of a whole system
	Page, Hooks               string           // of a whole system: host:port of bridge and listener
	Bus                       *journal.Journal // the test's own connection
	Disk                      *natstest.Disk   // if there is [Options.DiskMiB]
	Tail                      *Tail
	Effects                   string // file
	Archive                   string // directory; empty: nothing leaves the log

	keys   string // the file of the bus's keys
	trust  *trust.Authority
	acked  acked
	bots   []*Bot
	caller *bus.Caller
	ways   []*Proxy // to each server, of the others
}

// New prepares a system and starts its NATS server; [System.Start] starts the rest.
func New(t testing.TB, o Options) *System {
	t.Helper()
	enter(t)
	s := &System{T: t, Dir: workDir(t)}
	s.Effects, s.keys = filepath.Join(s.Dir, "effects.jsonl"), filepath.Join(s.Dir, "keys.json")
	var err error
	if s.trust, err = trust.Open(s.keys); err != nil {
		t.Fatal(err)
	}
	s.bus(o)
	if o.DiskMiB > 0 {
		s.Disk = natstest.SmallDisk(t, o.DiskMiB)
		s.NATS.Role.Dir = s.Disk.Dir
	}
	config := filepath.Join(s.Dir, "core.yaml")
	if o.Config == "" {
		o.Config = "agents: {main: {}}\n"
	}
	if o.Retain {
		s.Archive = filepath.Join(s.Dir, "archive")
		o.Config += fmt.Sprintf("retention: {archive: %q, turns: 1, every: 1s}\n", s.Archive)
	}
	if err := os.WriteFile(config, []byte(o.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	proc := func(n int, r Role) []*Proc {
		if n == 0 {
			n = 1
		}
		var out []*Proc
		for i := range max(n, 0) {
			r := r
			r.Name = string(r.Kind) + strconv.Itoa(i)
			r.URL, r.Keys, r.Drain, r.Slots = s.URL, s.keys, o.Drain, cmp.Or(r.Slots, o.Slots)
			if r.Drain == 0 {
				r.Drain = time.Second
			}
			if o.URL != nil {
				if via := o.URL(r, s.URL); via != "" {
					r.URL = via
				}
			}
			if r.Kind == Core && r.Store == "" {
				r.Store = filepath.Join(s.Dir, r.Name+".db")
			}
			out = append(out, newProc(t, s.Dir, r))
		}
		return out
	}
	runner := Role{Kind: Runner, Effects: s.Effects}
	if o.Whole {
		o.Store = s.others(proc)
		runner = Role{Kind: Toolrunner, Dir: filepath.Join(s.Dir, "workspace")}
	}
	s.Cores = proc(o.Cores, Role{Kind: Core, Config: config, Store: o.Store})
	s.Providers = proc(o.Providers, Role{Kind: Provider, Slots: o.ProviderSlots})
	s.Runners = proc(o.Runners, runner)
	for _, n := range s.Nodes {
		n.Start()
	}
	quiet := slog.New(slog.DiscardHandler)
	all := s.Credentials("observer")
	s.Bus = natstest.Dial(t, bus.Config{URL: s.URL, Name: "observer", Credentials: all, Logger: quiet})
	natstest.EnsureStreams(t, s.Bus)
	if s.caller, err = s.Bus.NewCaller(); err != nil {
		t.Fatal(err)
	}
	tail := s.URL
	if o.Routed { // the first server may be isolated, and the tail stays where it is
		_, tail, _ = strings.Cut(tail, ",")
	}
	s.Tail = NewTail(t, tail, all)
	t.Cleanup(s.explain)
	return s
}

// Credentials allow everything on the bus.
func (s *System) Credentials(name subject.Identity) *bus.Credentials {
	s.T.Helper()
	all, err := s.trust.Whole(name)
	if err != nil {
		s.T.Fatal(err)
	}
	return all
}

// bus prepares the NATS servers. A single server keeps the plain name.
func (s *System) bus(o Options) {
	var urls []string
	nodes := max(o.Nodes, 1)
	routes := natstest.Routes(s.T, nodes)
	for i, own := range routes {
		addr := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(s.T))
		r := Role{Kind: NATS, Name: "nats", Keys: s.keys, Addr: addr, Dir: filepath.Join(s.Dir, "nats"), Relaxed: o.Relaxed}
		if nodes > 1 {
			r.Name, r.Dir = "nats"+strconv.Itoa(i), r.Dir+strconv.Itoa(i)
			r.Cluster = &natsserver.Cluster{Addr: own, Routes: slices.Clone(routes)}
			if o.Routed {
				r.Cluster.Routes, r.Cluster.Advertise = s.routed(routes), s.routed(routes)[i]
			}
		}
		s.Nodes = append(s.Nodes, newProc(s.T, s.Dir, r))
		urls = append(urls, "nats://"+addr)
	}
	s.NATS, s.URL = s.Nodes[0], strings.Join(urls, ",")
}

// room bounds how many systems there are at once, however many tests run in
// parallel: each has some seven processes, which take 0.2 GB, and up to 1 GB under
// the race detector. A test may have two, and only so many tests may wait for a
// second that somebody is left to go.
var room = make(chan struct{}, 6)

// routed returns the addresses of proxies of the routes.
func (s *System) routed(routes []string) (via []string) {
	for i, r := range routes {
		if i == len(s.ways) {
			s.ways = append(s.ways, NewProxy(s.T, "nats://"+r))
		}
		via = append(via, s.ways[i].addr())
	}
	return via
}

// Isolate cuts a server of a cluster off from the others, but not from its clients.
func (s *System) Isolate(node int) {
	for i, way := range s.ways {
		if i == node {
			way.Cut()
		} else {
			way.CutFrom(s.Nodes[node].Role.Name)
		}
	}
}

// Rejoin ends [System.Isolate].
func (s *System) Rejoin() {
	for _, way := range s.ways {
		way.Heal()
	}
}

// enter waits until there is room for another system, which is until the end of the test.
func enter(t testing.TB) {
	room <- struct{}{}
	t.Cleanup(func() { <-room })
}

// Start is [New] and everything started.
func Start(t testing.TB, o Options) *System {
	t.Helper()
	s := New(t, o)
	for _, p := range s.Procs() {
		if !p.Running() {
			if p.Role.Kind == Plugin { // core runs by now
				p.Role.Token = s.Invite(pluginName)
			}
			p.Start()
		}
	}
	return s
}

// workDir is the test's directory; SKANDHA_E2E_KEEP names one that stays.
func workDir(t testing.TB) string {
	keep := os.Getenv("SKANDHA_E2E_KEEP")
	if keep == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(keep, filepath.Base(t.Name())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the processes' logs stay in %s", dir)
	return dir
}

// explain shows the processes' logs of a test that failed, and lays down the story
// of the log beside them.
func (s *System) explain() {
	if err := os.WriteFile(filepath.Join(s.Dir, "log.txt"), []byte(s.Tail.Story(1<<30)), 0o600); err != nil {
		s.T.Log(err)
	}
	for _, p := range s.Procs() {
		p.inspect()
	}
	if !s.T.Failed() {
		return
	}
	for _, p := range s.Procs() {
		s.T.Log(p.Tail(25))
	}
}

// Procs are all processes, the NATS servers first.
func (s *System) Procs() []*Proc {
	return slices.Concat(s.Nodes, s.Cores, s.Providers, s.Runners, s.Others)
}

// Runner is the process that an instance id belongs to.
func (s *System) Runner(instance string) *Proc {
	s.T.Helper()
	name := s.NameOf(instance)
	for _, p := range s.Runners {
		if p.Role.Name == name {
			return p
		}
	}
	s.T.Fatalf("no runner is called %q", instance)
	return nil
}

// Ref names a session of the default agent.
func Ref(session string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(session)}
}

// Say stores an input and returns its sequence once it is acknowledged.
func (s *System) Say(ref subject.Ref, text string) uint64 {
	s.T.Helper()
	return s.Input(ref, "test", event.Input{Text: text})
}

// Do stores an input that is a script.
func (s *System) Do(ref subject.Ref, script Script) uint64 {
	s.T.Helper()
	return s.Say(ref, script.Text())
}

// Input stores an input of the writer.
func (s *System) Input(ref subject.Ref, w subject.Writer, in event.Input) uint64 {
	s.T.Helper()
	return s.Cause(ref, subject.Input, w, in.ID, in)
}

// Cause stores any cause and returns its sequence once it is acknowledged.
func (s *System) Cause(ref subject.Ref, kind subject.CauseKind, w subject.Writer, id string, body any) uint64 {
	s.T.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.T.Fatal(err)
	}
	seq, err := s.publish(ref, kind, w, id, b)
	if err != nil {
		s.T.Fatalf("storing a cause: %v", err)
	}
	return seq
}

// Ended waits until the log holds the terminal event of an input, and returns it.
func (s *System) Ended(seq uint64) Terminal {
	s.T.Helper()
	return s.EndedIn(s.T, seq)
}

// EndedIn is [System.Ended] in a subtest, which must not end the test that the system is of: that would be a panic.
func (s *System) EndedIn(t testing.TB, seq uint64) Terminal {
	t.Helper()
	var out Terminal
	s.Tail.Await(t, fmt.Sprintf("terminal event of the input at %d", seq), func(l *Log) bool {
		ends := l.Terminals[seq]
		if len(ends) == 0 {
			return false
		}
		out = ends[0]
		return true
	})
	return out
}

// Status asks any core.
func (s *System) Status() (coreapi.Status, error) {
	var st coreapi.Status
	b, err := s.ask(coreapi.VerbStatus, nil)
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	return st, err
}

// AwaitCores waits until n different cores answer.
func (s *System) AwaitCores(n int) {
	s.T.Helper()
	seen := map[subject.Instance]bool{}
	Eventually(s.T, fmt.Sprintf("%d cores answer", n), func() bool {
		if st, err := s.Status(); err == nil {
			seen[st.Instance] = true
		}
		return len(seen) >= n
	})
}

// AwaitExecutors waits until every core that runs knows n executors.
func (s *System) AwaitExecutors(n int) {
	s.T.Helper()
	cores := 0
	for _, c := range s.Cores {
		if c.Running() {
			cores++
		}
	}
	know := map[subject.Instance]bool{}
	Eventually(s.T, fmt.Sprintf("%d cores know %d executors", max(cores, 1), n), func() bool {
		st, err := s.Status()
		if err == nil && len(st.Executors) >= n {
			know[st.Instance] = true
		}
		return len(know) >= max(cores, 1)
	})
}

// Eventually waits until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", Patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

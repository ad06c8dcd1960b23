package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/redistest"
)

// chaosConfig asks a person about risky calls, and does not wait long for one.
const chaosConfig = `
agents:
  main:
    confirm: 6s
policy:
  - {tool: "e2e:risky", effect: confirm, reason: it cannot be taken back}
`

// Whatever is killed with SIGKILL, in whatever order: every acknowledged input
// ends exactly once, every call has one result that is true, and the log folds to
// what it says it does (promises 1, 2, 3, 4 and 7).
func TestKill9(t *testing.T) {
	t.Parallel()
	sessions, turns, rounds := 8, 26, int64(3)
	switch runMode() {
	case short:
		sessions, turns, rounds = 5, 8, 1
	case long:
		sessions, turns, rounds = 10, 60, 6
	}
	chaos(t, sessions, turns, rounds, "")
}

// The same with one view for all cores, in Redis.
func TestKill9Redis(t *testing.T) {
	t.Parallel()
	if runMode() == short {
		t.Skip("NOT TESTED in a short run")
	}
	chaos(t, 5, 8, 1, redistest.Start(t))
}

// chaos runs that many turns at least, and until everybody was a victim so often.
func chaos(t *testing.T, sessions, turns int, rounds int64, store string) {
	r := seeded(t)
	s := Start(t, Options{
		Cores: 2, Providers: 2, Runners: 2, Config: chaosConfig, Store: store, Drain: 200 * time.Millisecond,
	})
	s.Person()

	k := killer{s: s, rounds: rounds, r: rand.New(rand.NewPCG(r.Uint64(), 2)), done: map[string]int{}}
	var talks, kills sync.WaitGroup
	for i := range sessions {
		talk := talker{s: s, k: &k, ref: Ref(fmt.Sprintf("s%d", i)), r: rand.New(rand.NewPCG(r.Uint64(), 1))}
		talks.Go(func() { talk.run(turns, k.thorough) })
	}
	kills.Go(k.run)
	talks.Wait()
	k.over.Store(true)
	kills.Wait()
	t.Logf("killed: %v; %d times it was let be for a while", k.done, k.lulls.Load())

	log := s.Verify()
	report(t, log)
	if n := len(log.Terminals); n < sessions*turns {
		t.Errorf("%d inputs ended, want at least %d", n, sessions*turns)
	}
	for _, c := range s.Cores {
		c.Stop()
	}
	t.Logf("%d snapshots fit the log", s.Views(t))
}

// killer kills one process after the other, and starts it again; some it only
// stalls for a while, or stops cleanly. In the end all run.
type killer struct {
	s      *System
	r      *rand.Rand
	rounds int64
	deck   []*Proc      // the next victims: all have equally many turns
	dealt  atomic.Int64 // how often the deck was shuffled
	over   atomic.Bool
	calm   atomic.Int64 // how many wait for it to let things come to rest
	lulls  atomic.Int64
	done   map[string]int
}

// thorough reports whether every process was a victim enough times.
func (k *killer) thorough() bool { return k.dealt.Load() > k.rounds }

func (k *killer) next() *Proc {
	if len(k.deck) == 0 {
		k.deck = k.s.Procs()
		k.r.Shuffle(len(k.deck), func(i, j int) { k.deck[i], k.deck[j] = k.deck[j], k.deck[i] })
		k.dealt.Add(1)
	}
	p := k.deck[0]
	k.deck = k.deck[1:]
	return p
}

func (k *killer) run() {
	for !k.over.Load() {
		pause(k.r, 300, 2200)
		if k.calm.Load() > 0 {
			continue
		}
		if k.r.IntN(8) == 0 {
			k.stall(k.s.Procs()[k.r.IntN(len(k.s.Procs()))])
			continue
		}
		victims := []*Proc{k.next()}
		if k.r.IntN(4) == 0 { // two at once
			if other := k.next(); other != victims[0] {
				victims = append(victims, other)
			}
		}
		for _, p := range victims {
			k.end(p)
		}
		pause(k.r, 0, 1800)
		for _, p := range victims {
			p.Start()
		}
	}
}

func (k *killer) stall(p *Proc) {
	k.done[string(p.Role.Kind)+" (stalled)"]++
	p.Stall()
	pause(k.r, 500, 8000)
	p.Resume()
}

func (k *killer) end(p *Proc) {
	if k.r.IntN(8) == 0 {
		k.done[string(p.Role.Kind)+" (stopped)"]++
		p.Stop()
		return
	}
	k.done[string(p.Role.Kind)]++
	p.Kill()
}

// pause spaces out what is random anyway; nothing waits for it.
func pause(r *rand.Rand, from, to int) {
	time.Sleep(time.Duration(from+r.IntN(to-from)) * time.Millisecond)
}

// talker speaks in one session, a few inputs ahead of the answers.
type talker struct {
	s   *System
	k   *killer
	ref subject.Ref
	r   *rand.Rand
}

const ahead = 3

// run speaks so often, and on until enough has happened.
func (k talker) run(turns int, enough func() bool) {
	var said []uint64
	for i := 0; i < turns || !enough(); i++ {
		if len(said) >= ahead {
			k.ended(said[len(said)-ahead])
		}
		said = append(said, k.speak(i)...)
	}
}

// ended waits for the end of an input. To give up an executor that is dead takes a core
// some ten seconds in which it lives, and the bus with it: who kills lets them have those
// to a caller that waits for long. What has not ended then is wedged.
func (k talker) ended(seq uint64) {
	if !k.s.Tail.Within(Patience/4, func(l *Log) bool { return len(l.Terminals[seq]) > 0 }) {
		k.k.lulls.Add(1)
		k.k.calm.Add(1)
		defer k.k.calm.Add(-1)
	}
	k.s.Ended(seq)
}

// speak stores one input, or several that belong together.
func (k talker) speak(i int) []uint64 {
	w := subject.Writer([]string{"alice", "bob"}[k.r.IntN(2)])
	in := event.Input{ID: fmt.Sprintf("in-%d", i), Text: script(k.r).Text()}
	switch k.r.IntN(20) {
	case 0:
		in.Mode = event.ModeInterrupt
	case 1: // the same id again, as another message
		first := k.s.Input(k.ref, w, in)
		again, err := k.s.RawWithin(5*time.Second, k.ref.Cause(subject.Input, w), nil,
			fmt.Appendf(nil, `{"text":"again","id":%q}`, in.ID))
		if err != nil {
			return []uint64{first} // the bus is away: nothing was acknowledged
		}
		return []uint64{first, again}
	case 2:
		return []uint64{k.s.Cause(k.ref, subject.Command, w, in.ID, event.Command{Name: "metrics", ID: in.ID})}
	case 3: // cancelled as soon as it is stored: running, waiting or over
		seq := k.s.Input(k.ref, w, in)
		k.s.Cause(k.ref, subject.Cancel, w, "", event.Cancel{Sequence: seq})
		return []uint64{seq}
	}
	return []uint64{k.s.Input(k.ref, w, in)}
}

// script is what one input asks for.
func script(r *rand.Rand) Script {
	n := r.IntN(1000)
	args := func(ms int) Args {
		a := Args{N: r.IntN(100), AtEnd: r.IntN(2) == 0, Fail: r.IntN(12) == 0}
		if ms > 0 {
			a.MS = r.IntN(ms)
		}
		return a
	}
	s := Script{Tag: fmt.Sprint(n), ThinkMS: r.IntN(80)}
	once := Call{ID: "once", Tool: ToolOnce, Args: args(400)}
	again := Call{ID: "again", Tool: ToolAgain, Args: args(400)}
	risky := Call{ID: "risky", Tool: ToolRisky, Args: args(200)}
	slow := Call{ID: "slow", Tool: ToolOnce, Args: args(2500)}
	switch r.IntN(20) {
	case 0, 1, 2:
		return s
	case 3, 4, 5:
		s.Rounds = []Round{{once}}
	case 6, 7:
		s.Rounds = []Round{{again}}
	case 8, 9, 10:
		s.Rounds = []Round{{once, again}}
	case 11:
		again.DependsOn = []string{"once"}
		s.Rounds = []Round{{once, again}, {risky}}
	case 12, 13:
		s.Rounds = []Round{{plan(r, args)}}
	case 14:
		s.Rounds, s.Person = []Round{{slow, again}}, []Conduct{Cancel}
	case 15:
		s.Rounds = []Round{{slow}, {once}}
	default:
		s.Rounds = []Round{{risky}}
		if r.IntN(2) == 0 {
			s.Rounds[0] = append(s.Rounds[0], slow)
		}
	}
	if len(s.Person) == 0 {
		s.Person = []Conduct{[]Conduct{
			Approve, Approve, Approve, Twice, Deny, Ignore, Forge,
		}[r.IntN(7)]}
	}
	return s
}

// plan is a plan:execute call of four steps, the last of which depends on all.
func plan(r *rand.Rand, args func(int) Args) Call {
	tools := []string{ToolOnce, ToolAgain}
	step := func(id string, deps ...string) map[string]any {
		return map[string]any{"id": id, "tool": tools[r.IntN(2)], "params": args(300), "depends_on": deps}
	}
	last := map[string]any{
		"id": "d", "tool": ToolOnce, "params": map[string]any{"n": "${a.n}"}, "depends_on": []string{"b", "c"},
	}
	return Call{ID: "plan", Tool: "plan:execute", Args: map[string]any{
		"steps": []any{step("a"), step("b", "a"), step("c", "a"), last}, "stop_on_failure": r.IntN(2) == 0,
	}}
}

// report tells what the run has met, so that nobody takes an empty one for a proof.
func report(t *testing.T, log *Log) {
	t.Helper()
	ends, results := map[string]int{}, map[string]int{}
	for seq, list := range log.Terminals {
		for _, e := range list {
			switch e.Failed {
			case "poison", "deadline", "provider_failed", "no_provider", "state_mismatch", "circuit_open":
				t.Logf("input %d ended in commit %d as %s: %s", seq, e.Commit, e.Failed, e.Reason)
			}
			if e.Failed == "" {
				e.Failed = "recorded"
			}
			ends[e.Failed]++
		}
	}
	attempts := 0
	for _, k := range log.Calls {
		attempts += len(k.Requested)
		for _, r := range k.Results {
			results[r]++
		}
	}
	t.Logf("%d messages in the log; inputs ended: %v", len(log.Entries), ends)
	t.Logf("%d calls with %d attempts ended: %v", len(log.Calls), attempts, results)
}

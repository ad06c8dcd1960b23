package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/test/natstest"
)

// deliverInVain delivers the waiting cause n times without deciding it, like a core whose
// connection breaks repeatedly.
func (s *system) deliverInVain(n int) {
	s.t.Helper()
	consumer, err := s.bus.JetStream().Consumer(s.t.Context(), bus.StreamSessions, "core")
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		m, err := consumer.Next(jetstream.FetchMaxWait(natstest.Patience))
		if err != nil {
			s.t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.bus.Conn().Flush(); err != nil {
		s.t.Fatal(err)
	}
}

func TestDeliveriesWithoutDecisionsAreNoPoison(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.stopCore()
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	seq := s.say(ref, event.Input{Text: "hi"})
	s.deliverInVain(10)
	c := s.startCore(core.Config{})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if rec.Sequence != seq || c.Counters()["poison"] != 0 {
		t.Errorf("%+v, %d causes were taken for poison", rec, c.Counters()["poison"])
	}
	if n := c.Counters()["redeliveries"]; n != 1 {
		t.Errorf("%d deliveries were counted that are not the first; want that of the input", n)
	}
}

// killable starts a core that kill ends like SIGKILL: from then on, nothing that it does
// reaches the bus.
func (s *system) killable(policy decide.Policy, open int) (c *shell.Core, name subject.Instance, kill func()) {
	s.t.Helper()
	b := s.connect()
	c, err := shell.New(shell.Config{
		Agents: map[subject.Agent]*decide.Agent{"main": {
			Name: "main", Limits: decide.DefaultLimits(), Granted: [][]string{{"*"}}, Shortlist: 1, Confidence: 0.7,
			Guide: guide.Guide{Decision: guide.Engine},
		}},
		Policy: policy, Drain: 100 * time.Millisecond, OpenSessions: open,
	}, b, s.store(), natstest.Logger(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			natstest.Logger(s.t).Info("a killed core ended", "error", err)
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	if err := c.AwaitReady(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return c, b.Instance(), func() { b.Close(); cancel() }
}

// allowing is a policy that first calls look.
type allowing func(decide.Access)

func (f allowing) Evaluate(a decide.Access) decide.Ruling {
	f(a)
	return decide.Ruling{Effect: decide.Allow}
}

// An input that kills each core that decides about it is poison after three of them, also if the
// server forgets what it delivered. The inputs that wait meanwhile, in its session and in
// others, are not: they end in order.
func TestAnInputThatKillsThreeCoresIsPoisonAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name    string
		forgets bool
		calls   bool // it is not the input that kills, but the model's answer
	}{{name: "the input"}, {name: "the input, and the server forgets deliveries", forgets: true}, {name: "the turn", calls: true}} {
		t.Run(c.name, func(t *testing.T) {
			sessions, waiting := 20, 200
			if raceEnabled { // each step takes ten times as long
				waiting = 40
			}
			s := start(t, core.Config{})
			if c.calls {
				s.model = func(m provider.Message) provider.Response {
					if m.Role == provider.RoleUser {
						return calls(do(`{}`))
					}
					return provider.Response{TextContent: "done"}
				}
			}
			s.stopCore()
			died, end := make(chan struct{}), make(chan struct{})
			defer close(end)
			policy := allowing(func(a decide.Access) {
				if a.Principal == "deadly" && (a.Context.Call != "") == c.calls {
					select {
					case died <- struct{}{}:
						<-end // this process does nothing any more
					case <-end:
					}
				}
			})
			var deadly uint64
			want := map[subject.Session][]uint64{}
			for n := range 3 {
				_, _, kill := s.killable(policy, 0)
				if n == 0 {
					var err error
					if deadly, err = s.bus.PublishCause(t.Context(), subject.Ref{Agent: "main", Session: "s07"}, subject.Input,
						"deadly", "", []byte(`{"text":"hi"}`)); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case <-died:
					kill()
				case <-time.After(natstest.Patience):
					t.Fatalf("core %d survived", n)
				}
				for i := range waiting * (1 - min(n, 1)) { // once the first core is dead
					ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%02d", i%sessions))}
					want[ref.Session] = append(want[ref.Session], s.say(ref, event.Input{Text: "healthy"}))
				}
				if c.forgets {
					if err := s.bus.JetStream().DeleteConsumer(t.Context(), bus.StreamSessions, "core"); err != nil {
						t.Fatal(err)
					}
				}
			}
			last, _, _ := s.killable(policy, 0)
			got, poison := map[subject.Session][]uint64{}, uint64(0)
			s.endings(0, waiting+1, func(e event.Event) bool {
				if e.Type == event.TypeTurnFailed {
					var f event.TurnFailed
					if err := e.DataAs(&f); err != nil || f.Code != event.FailPoison || poison != 0 {
						t.Fatalf("%s: %s", e.Session, e.Data)
					}
					contains(t, f.Reason, "2 core processes ended while each")
					poison = f.Sequence
					return true
				}
				var r event.Recorded
				if err := e.DataAs(&r); err != nil {
					t.Fatal(err)
				}
				got[e.Session] = append(got[e.Session], r.Sequence)
				return true
			})
			if poison != deadly || !reflect.DeepEqual(got, want) {
				t.Errorf("poison is %d, want %d; ended %v, want %v", poison, deadly, got, want)
			}
			if n := last.Counters()["poison"]; n != 1 {
				t.Errorf("%d causes were taken for poison, want 1", n)
			}
		})
	}
}

// Cores that are killed, one after the other, prove nothing about the inputs and turns that
// wait there.
func TestWhatWaitsInCoresThatAreKilledIsNoPoison(t *testing.T) {
	sessions, inputs := 50, 4
	if raceEnabled { // each step takes ten times as long
		sessions = 12
	}
	s := start(t, core.Config{}, func(s *system) { s.slots = 1 })
	kills := 0
	ended := s.crowd(sessions, inputs, func() {
		s.stopCore()
		for kills < 4 {
			c, name, kill := s.killable(allowing(func(decide.Access) {}), sessions/2)
			natstest.Eventually(t, "inputs and turns wait", func() bool {
				n := c.Counters()
				return n["waiting_sessions"] > 0 && n["queued_sessions"] > 0 || n["queued_sessions"] >= int64(sessions/2-2)
			})
			natstest.Eventually(t, "nothing is being decided", func() bool { return len(s.marked(sessions, name)) == 0 })
			kill()
			kills++
		}
		s.core = s.startCore(core.Config{})
	})
	if len(ended) != sessions*inputs || s.core.Counters()["poison"] != 0 {
		t.Errorf("%d ended, %d as poison", len(ended), s.core.Counters()["poison"])
	}
}

// marked returns those of the sessions of a crowd that have a mark of a core, or of any if
// it has no name, as the log has them.
func (s *system) marked(sessions int, by subject.Instance) (marked []subject.Ref) {
	s.t.Helper()
	for i := range sessions {
		ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%02d", i))}
		state, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(s.t)}).Rebuild(s.t.Context(), ref)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, b := range []*decide.Begun{state.Begun, state.Driven} {
			if b != nil && (by == "" || slices.Contains(b.Cores, by)) {
				marked = append(marked, ref)
			}
		}
	}
	return marked
}

// A core that is stopped while inputs and turns wait, or are being decided, leaves no marks.
func TestACoreThatIsStoppedLeavesNoMarks(t *testing.T) {
	t.Parallel()
	const sessions, inputs = 20, 2
	s := start(t, core.Config{}, func(s *system) { s.slots = 1 })
	ended := s.crowd(sessions, inputs, func() {
		for range 4 {
			s.stopCore()
			if marked := s.marked(sessions, ""); len(marked) > 0 {
				t.Errorf("marked are %v", marked)
			}
			s.core = s.startCore(core.Config{})
			natstest.Eventually(t, "turns are driven", func() bool { return s.core.Counters()["queued_sessions"] > 0 })
		}
	})
	if len(ended) != sessions*inputs || s.core.Counters()["poison"] != 0 {
		t.Errorf("%d ended, %d as poison", len(ended), s.core.Counters()["poison"])
	}
}

// What cores begin and do not survive is counted in the log, so that it counts for every
// core. The mark of a core that lives does not count.
func TestWhatCoresBeginInVainIsPoison(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "healthy"})
	s.await(ch, event.TypeRecorded)
	s.stopCore()
	seq := s.say(ref, event.Input{Text: "deadly"})
	for i := range decide.PoisonAt {
		s.beginAndDie(ref, seq, subject.Instance(fmt.Sprintf("core-%d", i)))
	}
	s.deliverInVain(1)
	c := s.startCore(core.Config{})
	failed := s.failure(ch)
	if failed.Sequence != seq || failed.Code != event.FailPoison || !strings.Contains(failed.Reason, "core processes ended") {
		t.Errorf("%+v", failed)
	}
	if n := c.Counters()["poison"]; n != 1 {
		t.Errorf("%d causes were taken for poison, want 1", n)
	}
	s.say(ref, event.Input{Text: "healthy again"})
	s.await(ch, event.TypeRecorded)
}

// beginAndDie acts as a core that stores that it begins to decide, and then dies.
func (s *system) beginAndDie(ref subject.Ref, seq uint64, as subject.Instance) {
	s.t.Helper()
	state, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(s.t)}).Rebuild(s.t.Context(), ref)
	if err != nil {
		s.t.Fatal(err)
	}
	d := decide.OnBegin(state, seq, seq, as, &decide.Env{Now: time.Now(), Nonce: func() string { return "begun" }})
	body, err := d.Commit.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.bus.AppendCommit(s.t.Context(), ref, body, state.Rev); err != nil {
		s.t.Fatal(err)
	}
}

// failure returns the next terminal event, which must be a failure.
func (s *system) failure(ch <-chan event.Event) event.TurnFailed {
	s.t.Helper()
	for {
		e := s.next(ch)
		if !e.Type.Terminal() {
			continue
		}
		var p event.TurnFailed
		if err := e.DataAs(&p); err != nil {
			s.t.Fatalf("%s: %v", e.Type, err)
		}
		return p
	}
}

type panicking struct{ decide.Policy }

func (panicking) Evaluate(decide.Access) decide.Ruling { panic("of the policy") }

// A panic proves that deciding fails, however often the cause was delivered.
func TestATurnWhoseDecisionsPanicIsPoison(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.stopCore()
	s.model = func(m provider.Message) provider.Response {
		if m.Text == "deadly" {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	c, err := shell.New(shell.Config{
		Agents: map[subject.Agent]*decide.Agent{"main": {Name: "main", Limits: decide.DefaultLimits()}},
		Policy: panicking{}, Drain: 100 * time.Millisecond,
	}, natstest.Connect(t, s.srv), s.store(), natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	s.background("core", func(ctx context.Context) error { return c.Run(ctx) })
	seq := s.say(ref, event.Input{Text: "deadly"})
	if failed := s.failure(ch); failed.Sequence != seq || failed.Code != event.FailPoison {
		t.Errorf("%+v", failed)
	}
	s.say(ref, event.Input{Text: "healthy"})
	s.await(ch, event.TypeRecorded)
}

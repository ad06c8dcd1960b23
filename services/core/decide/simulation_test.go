package decide_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/people"
)

// simulation moves a world at random. Its runners record what really began, and what
// never will.
type simulation struct {
	*world
	r        *rand.Rand
	next     []decide.Cause // stored, not processed yet
	attempts []*attempt
	known    map[string]*attempt
	plans    []executor.Answer // answers to old plan attempts, which may arrive late
	timers   []timer
	poisoned map[uint64]bool
	unruly   bool // hooks and policies answer at random; off while the world comes to rest
	strange  int  // one in this many model answers is odd
}

// mustApprovals returns rules that are valid.
func mustApprovals(who people.Config, rules ...security.ApprovalRule) decide.Approvals {
	d, err := people.New(who)
	if err != nil {
		panic(err)
	}
	a, err := security.NewApprovals(security.ApprovalsConfig{Rules: rules}, d)
	if err != nil {
		panic(err)
	}
	return a
}

type timer struct {
	id string
	at time.Time
}

func newSimulation(w *world, seed uint64) *simulation {
	s := &simulation{
		world: w, r: rand.New(rand.NewPCG(seed, 1)), known: map[string]*attempt{}, poisoned: map[uint64]bool{}, unruly: true,
	}
	s.strange = oneOf(s.r, 15, 100, 1000)
	moody := chance(s.r, 2)
	w.agent.Limits = decide.Limits{
		Rounds: oneOf(s.r, 0, 3, 6), Calls: oneOf(s.r, 0, 3, 8), Tokens: oneOf[int64](s.r, 0, 0, 400),
		CostMicroUSD: oneOf[int64](s.r, 0, 0, 90),
		Wall:         oneOf(s.r, 0, time.Minute, 10*time.Minute), Queue: oneOf(s.r, 0, 2, 50, 256),
		WindowTurns: oneOf(s.r, 0, 3),
	}
	w.agent.Limits.WindowTokens = oneOf(s.r, 0, 100, 1000)
	w.agent.Guide.MemoryPolicy = oneOf(s.r, guide.MemoryPolicies()...)
	if chance(s.r, 2) {
		w.memory = &mind{}
	}
	if chance(s.r, 2) {
		w.matcher, w.agent.Shortlist = words{}, oneOf(s.r, 0, 1, 3)
		w.agent.Guide.Decision = oneOf(s.r, guide.Native, guide.Engine)
	}
	if chance(s.r, 3) {
		w.approvals = mustApprovals(people.Config{"ann": {Accounts: []string{"web"}}, "bob": {Accounts: []string{"cli"}}, "cid": {}},
			security.ApprovalRule{People: 1 + s.r.IntN(2)},
			security.ApprovalRule{Risk: oneOf(s.r, tool.RiskHigh, ""), NotRequester: chance(s.r, 2)})
	}
	w.agent.Confirm = oneOf(s.r, 0, time.Minute, 1500*time.Microsecond)
	if chance(s.r, 6) {
		w.agent.Tools = []string{"read", "write", "plan:execute", "internal", "forbidden"}
	}
	for _, p := range hook.Points() {
		w.points[p] = moody && chance(s.r, 3)
	}
	w.hooks, w.judge = s.hook, s.judge
	s.seen.judges = w.points[hook.BeforeAct]
	calm := w.policy
	w.policy = func(a decide.Access) decide.Ruling {
		if s.unruly && moody && a.Resource.Name != "forbidden" && chance(s.r, 12) {
			return decide.Ruling{
				Effect: oneOf(s.r, decide.Deny, decide.Ask, decide.Ask, "shrug"), Rule: "mood", Reason: "the policy's mood",
				Warning: &hook.Warning{Level: hook.LevelWarn, Message: "a mood"},
			}
		}
		r := calm(a)
		if moody && r.Effect != decide.Deny && chance(s.r, 4) {
			r.Obligations = oneOf(s.r, &event.Obligations{MaxDurationMS: 1500},
				&event.Obligations{MaxResultBytes: 30, Note: "it is <cut>"}, &event.Obligations{})
		}
		return r
	}
	if moody {
		s.answers = func(a decide.Access) decide.Ruling {
			if a.Principal != "web" && chance(s.r, 3) {
				return decide.Ruling{Effect: oneOf(s.r, decide.Deny, decide.Ask), Rule: "mood", Reason: oneOf(s.r, "", "not them")}
			}
			return decide.Ruling{Effect: decide.Allow}
		}
	}
	return s
}

// run takes n random steps.
func (s *simulation) run(n int) {
	for i := range n {
		switch k := s.r.IntN(100); {
		case k < 10:
			s.perceive()
		case k < 26:
			s.processNext()
		case k < 56 && s.state.Turn != nil && s.state.Turn.Plan != nil, k < 30:
			s.provide()
		case k < 75 && len(s.state.Assigned()) > 0, k < 40:
			s.execute()
		case k < 82 && len(s.state.Confirmations()) > 0:
			s.confirmSomething()
			s.processNext()
		case k < 82:
			s.step()
		case k < 87:
			s.pass()
		case k < 92:
			s.step()
		case k < 96:
			s.weather()
		case k < 97:
			s.poison()
		default:
			s.reload()
		}
		if i%16 == 0 {
			s.reload()
		}
		s.fireTimers()
	}
}

// store commits a decision, unless another core wins the fence and decides the same
// again. Deciding must not have changed the state.
func (s *simulation) store(delivery uint64, decideIt func() *decide.Decision) bool {
	d := decideIt()
	if chance(s.r, 4) {
		s.same(s.state, s.replica, "decider's", "replica's, after deciding,")
	}
	if d == nil {
		return false
	}
	if chance(s.r, 15) {
		if d = decideIt(); d == nil {
			s.logf("decided otherwise the second time: nothing")
			return false
		}
	}
	s.meanwhile(d)
	s.commit(d, delivery)
	for _, e := range d.Commit.Events {
		var p event.ToolCallRequest
		if e.Type == event.TypeToolCallRequest && e.DataAs(&p) == nil {
			s.timers = append(s.timers, timer{p.ConfirmationID, p.ExpiresAt})
		}
	}
	s.follow()
	return true
}

// meanwhile stores causes between a decision and its commit: they precede whatever the
// commit asks or begins, and must not count as an answer to it.
func (s *simulation) meanwhile(d *decide.Decision) {
	if !chance(s.r, 8) {
		return
	}
	for _, e := range d.Commit.Events {
		var p event.ToolCallRequest
		if e.Type == event.TypeToolCallRequest && e.DataAs(&p) == nil {
			s.put(subject.Confirmation, event.Confirmation{ConfirmationID: p.ConfirmationID, Hash: p.Hash, Approved: true})
		}
	}
	if chance(s.r, 5) {
		s.put(subject.Command, event.Command{Name: "/cancel"})
	}
}

// follow records the attempts that the state has assigned.
func (s *simulation) follow() {
	for _, st := range s.state.Assigned() {
		if s.known[st.Attempt] == nil {
			a := &attempt{Step: st}
			s.known[st.Attempt] = a
			s.attempts = append(s.attempts, a)
		}
	}
}

func (s *simulation) put(kind subject.CauseKind, body any) {
	s.putRaw(kind, string(mustJSON(body)))
}

func (s *simulation) putRaw(kind subject.CauseKind, body string) {
	writer := oneOf[subject.Writer](s.r, "web", "cli")
	if kind == subject.Timer {
		writer = subject.TimerWriter
	}
	s.next = append(s.next, s.cause(kind, writer, body))
}

// processNext processes the oldest cause, with its own delivery or a later one.
func (s *simulation) processNext() {
	// delivered again
	if old := s.seen.causes[uint64(s.r.IntN(int(s.seq)+1))].Cause; old.Sequence > 0 && old.Sequence <= s.state.Cursor {
		if d, _ := decide.OnCause(s.state, old.Sequence, old, nil, s.env()); d != nil ||
			len(decide.MustClose(s.state, old)) > 0 {
			s.fail("cause %d has an effect for the second time", old.Sequence)
		}
	}
	if len(s.next) == 0 {
		return
	}
	c := s.next[0]
	s.next = s.next[1:]
	delivery := c.Sequence
	if len(s.next) > 0 && chance(s.r, 3) {
		delivery = oneOf(s.r, s.next...).Sequence
	}
	closings := s.close(decide.MustClose(s.state, c))
	reason := ""
	if !s.store(delivery, func() (d *decide.Decision) {
		d, reason = decide.OnCause(s.state, delivery, c, closings, s.env())
		return d
	}) {
		s.logf("cause %d has no effect: %s", c.Sequence, reason)
		if reason == "" {
			s.fail("no decision and no reason")
		}
	}
}

// pass lets time pass, and ends whatever is overdue.
func (s *simulation) pass() {
	s.now = s.now.Add(oneOf(s.r, 1300*time.Microsecond, 700*time.Millisecond, 9*time.Second, 40*time.Second,
		3*time.Minute))
	if s.state.Turn != nil && !s.state.Parked() && !s.now.Before(s.state.Turn.Deadline) {
		closings := s.close(s.state.Assigned())
		s.store(s.state.Driver,
			func() *decide.Decision { return decide.OnDeadline(s.state, s.state.Driver, closings, s.env()) })
	}
}

// step lets the driver check whether something can advance.
func (s *simulation) step() {
	s.store(s.state.Driver, func() *decide.Decision { return decide.OnProgress(s.state, s.state.Driver, s.env()) })
}

// weather changes which executors and tools are present.
func (s *simulation) weather() {
	switch s.r.IntN(10) {
	case 0:
		s.runners = oneOf(s.r, nil, []subject.Instance{"r1"}, []subject.Instance{"r2", "r3"})
	case 1:
		s.providers = oneOf(s.r, nil, []subject.Instance{"p1"}, []subject.Instance{"p2", "p1"})
	case 2:
		o := oneOf(s.r, s.tools["read"], s.tools["write"], s.tools["mail:send"])
		o.gone = !o.gone
		s.left, s.goneSince = map[string]bool{o.Name: o.gone && chance(s.r, 2)}, s.now
	case 3:
		if saved := s.agent; chance(s.r, 3) {
			s.agent = nil
			s.perceive()
			s.processNext()
			s.provide()
			s.agent = saved
		}
	case 4:
		s.delivery = uint64(1 + s.r.IntN(3))
	case 5:
		o := oneOf(s.r, s.tools["read"], s.tools["write"], s.tools["mail:send"])
		o.Plugin = oneOf(s.r, "", "good", "evil")
	default:
		s.everybodyIsThere()
	}
}

func (s *simulation) everybodyIsThere() {
	s.runners, s.providers = []subject.Instance{"r1", "r2"}, []subject.Instance{"p1", "p2"}
	for _, o := range s.tools {
		o.gone = false
	}
	s.left = nil
}

func (s *simulation) poison() {
	if len(s.next) > 0 && chance(s.r, 2) {
		c := s.next[0]
		s.next = s.next[1:]
		s.poisoned[c.Sequence] = true
		s.store(c.Sequence, func() *decide.Decision {
			return decide.OnPoison(s.state, c.Sequence, c, "it kills cores", s.env())
		})
		if d := decide.OnPoison(s.state, c.Sequence, c, "again", s.env()); d != nil {
			s.fail("a processed cause is ended as poison again")
		}
		return
	}
	if s.state.Turn != nil && chance(s.r, 4) {
		closings := s.close(s.state.Assigned())
		s.store(s.state.Driver, func() *decide.Decision {
			return decide.OnPoisonTurn(s.state, s.state.Driver, closings, "driving it kills cores", s.env())
		})
	}
}

// fireTimers publishes the timers that are due: late, and sometimes twice.
func (s *simulation) fireTimers() {
	var rest []timer
	for _, tm := range s.timers {
		if s.now.Before(tm.at) || s.unruly && chance(s.r, 2) {
			rest = append(rest, tm)
			continue
		}
		s.put(subject.Timer, event.Timer{ID: tm.id})
		if chance(s.r, 5) {
			s.put(subject.Timer, event.Timer{ID: tm.id})
		}
	}
	s.timers = rest
}

// rest brings the world to rest: all executors are present and work normally.
func (s *simulation) rest() {
	s.unruly = false
	s.everybodyIsThere()
	s.put(subject.Command, event.Command{Name: "resume"})
	for n := 0; s.state.Turn != nil || len(s.next) > 0; n++ {
		if n > 3000 {
			s.fail("it is wedged: %s", mustJSON(s.state))
		}
		s.now = s.now.Add(200 * time.Millisecond)
		s.fireTimers()
		s.processNext()
		s.step()
		if t := s.state.Turn; t != nil && t.Plan != nil {
			s.provideFinal(t.Plan)
		}
		for _, a := range s.attempts {
			if s.current(a) {
				s.bringHome(a)
			}
		}
		if s.state.Parked() && len(s.next) == 0 { // nobody answers
			s.now = s.state.Turn.AskedUntil
		}
	}
}

// truth compares the recorded results with what happened. Unreachable attempts may begin
// even now.
func (s *simulation) truth() error {
	began := map[string]bool{}
	for _, a := range s.attempts {
		if a.cut && !a.tomb && chance(s.r, 2) {
			a.began = true
		}
		began[a.Call] = began[a.Call] || a.began && !a.probes()
	}
	for id, c := range s.seen.calls {
		r := c.completed.Result
		if r.Success {
			if c.Tool != "plan:execute" && c.Tool != "tools:find" && !began[id] && !s.seen.answered[id] {
				return fmt.Errorf("call %s is said to have succeeded and never ran", id)
			}
			continue
		}
		switch r.Error.Code {
		case tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied, tool.CodeExpired, tool.CodeUnknownTool:
			if began[id] {
				return fmt.Errorf("call %s is said to be %q, and it ran", id, r.Error.Code)
			}
		}
	}
	return s.planTruth()
}

// planTruth checks that a plan:execute call succeeded if and only if all its steps did.
func (s *simulation) planTruth() error {
	for id, c := range s.seen.calls {
		if c.Parent == "" {
			continue
		}
		if parent := s.seen.calls[c.Parent]; parent.completed.Result.Success && !c.completed.Result.Success &&
			!s.points[hook.AfterAct] {
			return fmt.Errorf("plan %s has succeeded and its step %s has not", c.Parent, id)
		}
	}
	return nil
}

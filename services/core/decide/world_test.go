package decide_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/toolschema"
)

var (
	ref   = subject.Ref{Agent: "a", Session: "s"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// stored is a message of the log.
type stored struct {
	seq  uint64
	body []byte
}

// storedCause is a cause with its body, which the observer reads anew.
type storedCause struct {
	decide.Cause
	body string
}

// world is everything around decide: the log, the clock, a directory, a catalog, a
// policy, hooks. Tests move it by hand, the simulation at random. Every commit goes
// through the wire format and is folded by an independent replica.
type world struct {
	leaves  bool // whether the last commit has something to deliver
	t       testing.TB
	state   *decide.State // the decider's
	replica *decide.State // folded from the log only
	log     []stored
	seq     uint64
	now     time.Time
	nonces  int
	seen    *observer

	agent        *decide.Agent
	others       map[subject.Agent]*decide.Agent // beside agent
	tools        map[string]*offered
	left         map[string]bool    // tools of plugins that have left
	goneSince    time.Time          // since when the missing tools are missing
	arrived      time.Time          // when a runner or plugin last registered
	heard        time.Time          // when the answer to decide on arrived
	runners      []subject.Instance // with a free slot
	providers    []subject.Instance
	full         bool                          // providers are present, without a free slot
	absent, busy map[string]bool               // providers by name
	providersOf  map[string][]subject.Instance // likewise; nil: all have the same
	hooks        func(hook.Envelope) hook.Decision
	judge        func(hook.Envelope, hook.Decision) hook.Decision // nil: continues
	points       map[hook.Point]bool
	policy       func(decide.Access) decide.Ruling // about calls
	matcher      engine.Matcher                    // nil: all tools are offered
	memory       decide.Memory                     // nil: the agent remembers nothing
	project      event.Project                     // the notes of the workspace
	answers      func(decide.Access) decide.Ruling // about who may answer; nil: any writer
	approvals    decide.Approvals                  // nil: one answer is enough
	delivery     uint64
	delay        time.Duration // between a commit's decision and its being stored, as the log's order sees it
	trace        []string
	handed       []handed
}

// handed is a state that another reader may still use.
type handed struct {
	*decide.State
	then []byte
}

type offered struct {
	tool.Spec
	*toolschema.Validator
	gone bool // no live runner offers it
}

var catalog = func() map[string]offered {
	all := map[string]offered{}
	for _, s := range []tool.Spec{
		{Name: "read", Idempotent: true, Scope: []string{"path"}, Description: "reads", Args: json.RawMessage(
			`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"},"list":{"type":"array"},"limit":{"type":"integer","default":10}},"additionalProperties":false}`)},
		{Name: "write", Description: "writes", Args: json.RawMessage(
			`{"type":"object","properties":{"text":{"type":"string"},"n":{}},"required":["text"],"additionalProperties":false}`)},
		{Name: "mail:send", Description: "needs a person", Risk: tool.RiskHigh, Probe: true, Scope: []string{
			"to",
		}, TimeoutMS: 5000, Args: json.RawMessage(
			`{"type":"object","properties":{"to":{"type":"string"}},"required":["to"],"additionalProperties":false}`)},
		{
			Name: "keep", Description: "keeps something", Sticky: true, Pool: "kept", Args: json.RawMessage(`{"type":"object"}`),
		},
		{Name: "forbidden", Description: "policy denies it", Args: json.RawMessage(`{"type":"object"}`)},
		{Name: executor.ReadFile, Description: "reads the workspace", Args: json.RawMessage(`{"type":"object"}`)},
		{Name: executor.Delegate, Description: "gives a task", Idempotent: true, Args: json.RawMessage(`{"type":"object"}`)},
		{Name: executor.SendAgent, Description: "sends a message", Idempotent: true, Args: json.RawMessage(`{"type":"object"}`)},
		{Name: executor.LoadSkill, Description: "loads a skill", Args: json.RawMessage(`{"type":"object"}`)},
		{
			Name: "internal", Description: "of the agent's own services", Internal: true,
			Args: json.RawMessage(`{"type":"object"}`),
		},
	} {
		v, err := toolschema.Compile(s)
		if err != nil {
			panic(err)
		}
		all[s.Name] = offered{Spec: s, Validator: v}
	}
	return all
}()

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, state: decide.New(ref), replica: decide.New(ref), now: epoch, seen: newObserver(),
		agent:   &decide.Agent{Name: "a", Limits: decide.DefaultLimits(), Confirm: 15 * time.Minute},
		tools:   map[string]*offered{},
		runners: []subject.Instance{"r1", "r2"}, providers: []subject.Instance{"p1", "p2"},
		points: map[hook.Point]bool{}, delivery: 1,
	}
	for name := range catalog {
		if !slices.Contains(later, name) {
			w.offer(name)
		}
	}
	w.policy = func(a decide.Access) decide.Ruling {
		switch a.Resource.Name {
		case "forbidden":
			return decide.Ruling{Effect: decide.Deny, Reason: "policy says no"}
		case "mail:send":
			return decide.Ruling{Effect: decide.Ask, Warning: &hook.Warning{Level: hook.LevelCritical, Message: "it leaves"}}
		}
		return decide.Ruling{Effect: decide.Allow}
	}
	return w
}

// later are the tools of the catalog that only [world.offer] offers.
var later = []string{executor.ReadFile, executor.LoadSkill, executor.Delegate, executor.SendAgent}

func (w *world) offer(name string) {
	o := catalog[name]
	w.tools[name], w.seen.specs[name] = &o, map[string]tool.Spec{}
}

func (w *world) env() *decide.Env {
	return &decide.Env{
		Now: w.now, Heard: w.heard, Delivery: w.delivery, Agent: w.agent, Agents: w.agentOf, Tools: w, Executors: w, Hooks: w, Policy: w, Memory: w.memory,
		Matcher: w.matcher, Project: w.project, Approvals: w.approvals,
		Outside: func(by subject.Writer) bool { return by == "mail" }, Undelete: time.Hour,
		Nonce: func() string { w.nonces++; return fmt.Sprintf("n%d", w.nonces) },
	}
}

// Gone implements decide.Catalog.
func (w *world) Gone(name string) (time.Time, bool) { return w.goneSince, w.left[name] }

// Arrived implements decide.Catalog.
func (w *world) Arrived(string) time.Time { return w.arrived }

// Lookup, Public and Validate implement decide.Catalog with the real schemas.
func (w *world) Lookup(name string) (tool.Spec, bool) {
	if o := w.tools[name]; o != nil && !o.gone {
		w.seen.specs[name][o.Digest()] = o.Spec
		return o.Spec, true
	}
	return tool.Spec{}, false
}

func (w *world) Public() []tool.Spec {
	var out []tool.Spec
	for _, name := range []string{
		executor.Delegate, executor.SendAgent, "file_system:read_file", "forbidden", "keep", "mail:send", "read", "skills:load", "write",
	} {
		if spec, ok := w.Lookup(name); ok {
			out = append(out, spec)
		}
	}
	return out
}

func (w *world) Validate(name string, args json.RawMessage) (json.RawMessage, []string) {
	if o := w.tools[name]; o != nil && !o.gone {
		return o.Validator.Validate(args)
	}
	return args, []string{"no runner offers " + name}
}

// PickRunner, PickProvider and Providers implement decide.Directory.
func (w *world) PickRunner(_ tool.Spec, be subject.Instance, not []subject.Instance) (subject.Instance, bool) {
	if slices.Contains(w.runners, be) {
		return be, !slices.Contains(not, be)
	}
	return pick(w.runners, not)
}

func (w *world) PickProvider(name string, not []subject.Instance) (subject.Instance, bool) {
	if w.absent[name] || w.busy[name] {
		return "", false
	}
	if w.providersOf != nil {
		return pick(w.providersOf[name], not)
	}
	return pick(w.providers, not)
}

// NoProvider returns 0 or a very long time.
func (w *world) NoProvider(name string) time.Duration {
	if w.absent[name] {
		return time.Hour
	}
	if len(w.providers) > 0 || w.full {
		return 0
	}
	return time.Hour
}

func (w *world) Providers() []provider.Info {
	return []provider.Info{{Name: "sim", Model: "dice"}, {Name: "gemini", Model: "flash"}, {Name: "openai", Model: "gpt"}}
}

func pick(from, not []subject.Instance) (subject.Instance, bool) {
	for _, i := range from {
		if len(not) == 0 || not[0] != i {
			return i, true
		}
	}
	return "", false
}

// Any and Run implement decide.Hooks.
func (w *world) Any(p hook.Point) bool { return w.points[p] }

func (w *world) Run(env hook.Envelope) hook.Decision {
	d := w.hooks(env)
	if env.Point == hook.BeforeAct && d.Verb == hook.AnswerFor {
		w.seen.answered[env.Step] = true
	}
	d.Verdicts = []hook.Verdict{{Point: env.Point, Plugin: "plug", Step: env.Step, Verb: d.Verb, Reason: d.Reason}}
	return d
}

// Shape implements decide.Hooks.
func (w *world) Shape(env hook.Envelope, _ func(json.RawMessage) (json.RawMessage, error)) hook.Decision {
	return w.Run(env)
}

// Rejudge implements decide.Hooks.
func (w *world) Rejudge(env hook.Envelope) hook.Decision { return w.Judge(env, hook.Decision{}) }

// Judge implements decide.Hooks.
func (w *world) Judge(env hook.Envelope, shaped hook.Decision) hook.Decision {
	if w.judge == nil {
		return hook.Decision{Verb: hook.Continue}
	}
	d := w.judge(env, shaped)
	d.Verdicts = []hook.Verdict{{Point: env.Point, Plugin: "judge", Step: env.Step, Verb: d.Verb, Reason: d.Reason}}
	return d
}

// on lets f answer a hook point.
func (w *world) on(p hook.Point, f func(hook.Envelope) hook.Decision) {
	before := w.hooks
	w.points[p] = true
	w.hooks = func(e hook.Envelope) hook.Decision {
		if e.Point == p {
			return f(e)
		}
		return before(e)
	}
}

// Evaluate implements decide.Policy.
func (w *world) Evaluate(a decide.Access) decide.Ruling {
	switch {
	case a.Action == event.ActionCall:
		return w.policy(a)
	case w.answers == nil:
		return decide.Ruling{Effect: decide.Allow}
	}
	return w.answers(a)
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail ends the test with the history that led here.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	from := max(0, len(w.trace)-60)
	w.t.Fatalf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace[from:], "\n"))
}

// cause stores a cause in the log without processing it.
func (w *world) cause(kind subject.CauseKind, writer subject.Writer, body string) decide.Cause {
	w.seq++
	c := decide.ReadCause(w.seq, subject.CauseSubject{Ref: ref, Kind: kind, Writer: writer}, w.now, []byte(body))
	w.seen.causes[c.Sequence] = storedCause{c, body}
	w.logf("cause %d %s.%s %.200s", c.Sequence, kind, writer, body)
	return c
}

// inputOf is the subject of a writer's inputs.
func inputOf(w subject.Writer) subject.CauseSubject {
	return subject.CauseSubject{Ref: ref, Kind: subject.Input, Writer: w}
}

// process decides about a cause with its own delivery, and stores the commit.
func (w *world) process(c decide.Cause, closings decide.Closings) string {
	w.t.Helper()
	d, reason := decide.OnCause(w.state, c.Sequence, c, closings, w.env())
	if d == nil {
		w.logf("cause %d has no effect: %s", c.Sequence, reason)
		return reason
	}
	w.commit(d, c.Sequence)
	return ""
}

// commit stores a decision: it is encoded, decoded and folded by the replica, and both
// states must be equal bit for bit (promise 4).
func (w *world) commit(d *decide.Decision, delivery uint64) {
	w.t.Helper()
	body, err := d.Commit.Encode()
	if err != nil {
		w.fail("encoding a commit: %v", err)
	}
	w.now = w.now.Add(w.delay)
	w.leaves = d.Outgoing
	w.seq++
	w.log = append(w.log, stored{w.seq, body})
	c, err := event.DecodeCommit(ref, body)
	if err != nil {
		w.fail("commit %d cannot be read back: %v\n%s", w.seq, err, body)
	}
	for i, e := range c.Events {
		if want := w.seen.causes[inputOfEvent(e)].Writer; d.Writers[i] != want {
			w.fail("commit %d: event %d, %s of %q, is said to be about an input of %q, want %q", w.seq, i, e.Type, e.Turn,
				d.Writers[i], want)
		}
	}
	w.logf("commit %d %s delivery %d driver %d:%s", w.seq, c.Header.Trigger.Kind, delivery, c.Header.Driver, summary(c))
	w.state = d.Stored(w.seq)
	if w.replica, err = w.replica.Apply(c, w.seq); err != nil {
		w.fail("the replica refuses commit %d: %v\n%s", w.seq, err, body)
	}
	w.same(w.state, w.replica, "decided", "folded")
	if len(w.log)%4 == 0 {
		then, _ := w.state.Snapshot()
		w.handed = append(w.handed, handed{w.state, then})
	}
	if err := w.seen.commit(c, w.seq, delivery); err != nil {
		w.fail("commit %d: %v\n%s", w.seq, err, body)
	}
	if err := wellFormed(w.replica); err != nil {
		w.fail("after commit %d: %v", w.seq, err)
	}
}

func (w *world) same(a, b *decide.State, as, bs string) {
	w.t.Helper()
	x, errX := a.Snapshot()
	y, errY := b.Snapshot()
	if errX != nil || errY != nil {
		w.fail("encoding states: %v, %v", errX, errY)
	}
	if a.Digest != b.Digest || string(x) != string(y) {
		w.fail("the %s and the %s state differ:\n%s\n%s", as, bs, x, y)
	}
}

// reload continues from a snapshot of the replica.
func (w *world) reload() {
	w.t.Helper()
	if len(w.log) == 0 {
		return
	}
	b, err := w.replica.Snapshot()
	if err != nil {
		w.fail("snapshot: %v", err)
	}
	last := w.log[len(w.log)-1]
	at, err := event.DecodeCommit(ref, last.body)
	if err != nil {
		w.fail("decoding: %v", err)
	}
	s, err := decide.FromSnapshot(b, ref, at, last.seq)
	if err != nil {
		w.fail("a sound snapshot at %d is refused: %v\n%s", last.seq, err, b)
	}
	w.same(w.state, s, "decided", "loaded")
	w.state = s
}

// unchanged checks that a state never changes after it was handed out, although later
// states share memory with it.
func (w *world) unchanged() {
	w.t.Helper()
	for _, h := range w.handed {
		if now, _ := h.State.Snapshot(); string(now) != string(h.then) {
			w.fail("the state at %d has changed:\n%s\n%s", h.Rev, h.then, now)
		}
	}
}

// rebuild folds the whole log again.
func (w *world) rebuild() *decide.State {
	w.t.Helper()
	s := decide.New(ref)
	for _, m := range w.log {
		c, err := event.DecodeCommit(ref, m.body)
		if err != nil {
			w.fail("commit %d: %v", m.seq, err)
		}
		if s, err = s.Apply(c, m.seq); err != nil {
			w.fail("commit %d: %v", m.seq, err)
		}
	}
	return s
}

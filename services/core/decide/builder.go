package decide

import (
	"fmt"
	"strconv"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// Decision is a commit that is ready to be appended after revision Prev, with the
// state after it.
type Decision struct {
	Commit event.Commit
	// Outgoing is set if the commit has something to deliver to the listener of an input.
	Outgoing bool
	// Writers has, for each event, the writer of the input that it is about: of the input that began
	// its turn, or the input that it ends without one. Empty: it is about no input.
	Writers []subject.Writer
	after   *State
}

// Stored returns the state after the commit, which was stored at seq.
func (d *Decision) Stored(seq uint64) *State {
	d.after.stamp(seq)
	return d.after
}

// State returns the state after the commit, before its sequence is known.
func (d *Decision) State() *State { return d.after }

// builder builds one commit. It folds each event into s as it is emitted, with the
// code that folds the event again when the session is rebuilt.
type builder struct {
	s       *State
	env     *Env
	head    event.Header
	events  []event.Event
	size    int // bytes of the events' data
	cause   string
	checked map[string]bool // calls whose arguments were validated for this commit
	touched bool            // the turn began, changed or ended: the delivery becomes its driver
	ready   bool            // a terminal event left the session idle
	quiet   bool            // no hook is asked (rule 13)
	notices []string        // of the hook engine, for the user
	// replyTo is the ReplyTo of the input that is decided; outgoing: the commit has something to
	// deliver.
	replyTo  string
	outgoing bool
	writers  []subject.Writer          // see [Decision.Writers]
	sender   subject.Writer            // of the cause that is decided
	wrecked  map[uint64]subject.Writer // of the open inputs of a damaged log
	as       *Agent                    // the session's, in asTerms; see agent
	asTerms  *event.Terms
}

// start begins a commit. delivery is the sequence of the cause whose delivery the
// deciding core holds.
func start(s *State, delivery uint64, trigger event.Trigger, now time.Time, env *Env) *builder {
	now = now.UTC().Truncate(time.Millisecond)
	if now.Before(s.Now) {
		now = s.Now
	}
	b := &builder{s: s.clone(), env: env, events: make([]event.Event, 0, 8), writers: make([]subject.Writer, 0, 8)}
	b.sender, b.head = trigger.Writer, event.Header{
		CommitID: env.Nonce(), Prev: s.Rev, Trigger: trigger, Cursor: s.Cursor, Driver: delivery,
		Delivery: env.Delivery, Now: now, FoldVersion: FoldVersion,
	}
	if trigger.Sequence > 0 {
		b.cause = strconv.FormatUint(trigger.Sequence, 10)
	}
	b.s.Now, b.s.version = now, FoldVersion
	return b
}

// emit adds an event to the commit and folds it.
func (b *builder) emit(p event.Payload) { b.emitIn(b.turnOf(p), p) }

func (b *builder) emitIn(turn string, p event.Payload) {
	e := event.New(b.s.Ref, b.head.CommitID+"."+strconv.Itoa(len(b.events)+1), event.Source, p)
	e.Time, e.Cause, e.Turn = b.head.Now, b.cause, turn
	b.outgoing = b.outgoing || b.leaves(p)
	w := b.writerOf(turn, p)
	taken, err := b.s.take(p)
	if !taken {
		err = b.s.fold(e)
	}
	if err != nil {
		panic(fmt.Sprintf("decide: %s: %v", e.Type, err)) // a bug in this package; the shell recovers (rule 13)
	}
	b.size += len(e.Data)
	b.events, b.writers = append(b.events, e), append(b.writers, w)
}

// writerOf returns who sent the input that an event is about, before the event is folded.
func (b *builder) writerOf(turn string, p event.Payload) subject.Writer {
	var ends uint64
	switch p := p.(type) {
	case event.Perceived:
		if turn != "" && p.Disposition != event.Joined {
			return p.Writer
		}
	case event.Recorded:
		ends = p.Sequence
	case event.TurnFailed:
		ends = p.Sequence
	}
	switch {
	case turn != "" && b.s.Turn != nil:
		return b.s.Turn.Writer
	case ends == 0:
		return ""
	case ends == b.head.Trigger.Sequence:
		return b.sender
	}
	if i := b.s.queued(ends); i >= 0 {
		return b.s.Queue[i].Writer
	}
	if w := b.s.Turn.joinedBy(ends); w != "" {
		return w
	}
	return b.wrecked[ends]
}

// turnOf returns the id of the turn that an event belongs to. An event about another
// input than the open turn's belongs to no turn.
func (b *builder) turnOf(p event.Payload) string {
	of := func(seq uint64) string {
		if b.s.Turn == nil || b.s.Turn.Sequence != seq {
			return ""
		}
		return b.s.Turn.ID
	}
	switch p := p.(type) {
	case event.Perceived:
		if p.Disposition == event.Started || p.Disposition == event.FromQueue {
			return TurnID(p.Sequence)
		}
		if p.Disposition == event.Joined {
			return b.s.Turn.ID
		}
		return ""
	case event.Recorded:
		return of(p.Sequence)
	case event.TurnFailed:
		return of(p.Sequence)
	}
	if b.s.Turn == nil {
		return ""
	}
	return b.s.Turn.ID
}

// state emits what the agent is doing, if that has changed.
func (b *builder) state(st event.AgentState) {
	if b.s.UI != st {
		b.emit(event.UIState{State: st})
	}
}

func (b *builder) message(text string) {
	b.emit(event.UIMessage{Content: text, Format: event.Markdown})
}

// done finishes the commit.
func (b *builder) done() *Decision {
	for _, n := range b.notices {
		b.emitIn("", event.UIMessage{Content: n, Format: event.Text})
	}
	b.state(b.agentState())
	if b.ready && b.s.Turn == nil {
		b.emit(event.UIReady{})
	}
	switch {
	case b.s.Turn == nil:
		b.head.Driver, b.head.Delivery = 0, 0
	case !b.touched:
		b.head.Driver, b.head.Delivery = b.s.Driver, b.s.Delivery
	}
	b.s.seal(b.head)
	b.head.Digest = b.s.Digest
	return &Decision{event.Commit{Ref: b.s.Ref, Header: b.head, Events: b.events}, b.outgoing, b.writers, b.s}
}

func (b *builder) agentState() event.AgentState {
	t := b.s.Turn
	switch {
	case t == nil && b.s.Locked != "":
		return event.StateLocked
	case b.s.Paused != nil && (t == nil || b.s.held() && len(b.s.Confirmations()) == 0):
		return event.StatePaused
	case t == nil:
		return event.StateWaiting
	case b.s.asking() || b.s.held():
		return event.StateConfirming
	case len(t.Steps) > 0:
		return event.StateExecuting
	}
	return event.StateThinking
}

// ask asks the plugins of a point. Without any, it costs a map lookup.
func ask[T any](b *builder, p hook.Point, step string, data T) hook.Decision {
	return asked(b, p, step, data, b.env.Hooks.Run)
}

func asked[T any](b *builder, p hook.Point, step string, data T, run func(hook.Envelope) hook.Decision) hook.Decision {
	if b.quiet || !b.env.Hooks.Any(p) {
		return hook.Decision{Verb: hook.Continue}
	}
	env := hook.Envelope{
		Point: p, Agent: b.s.Ref.Agent, Session: b.s.Ref.Session, Step: step,
		Cause: b.head.Trigger.Sequence, Data: encode(data),
	}
	if b.s.Turn != nil {
		env.Turn = b.s.Turn.ID
	}
	d := run(env)
	b.head.Hooks = append(b.head.Hooks, d.Verdicts...)
	b.notices = append(b.notices, d.Notices...)
	return d
}

// agent returns the current configuration. A turn may outlive its agent's entry in the
// configuration; it then continues without tools.
func (b *builder) agent() *Agent {
	if b.as == nil || b.asTerms != b.s.Terms {
		b.as, b.asTerms = b.configured().within(b.s.Terms, b.env.Agents), b.s.Terms
	}
	return b.as
}

func (b *builder) configured() *Agent {
	if b.env.Agent != nil {
		return b.env.Agent
	}
	return &Agent{Name: b.s.Ref.Agent, Tools: []string{}, Granted: [][]string{{}}, Limits: DefaultLimits()}
}

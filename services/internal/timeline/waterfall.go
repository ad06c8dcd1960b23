package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/turn"
)

// The limits of a timeline.
const (
	maxSpans       = 2000
	maxDetailBytes = 8 << 10   // of one value, such as a result
	maxDetails     = 768 << 10 // of all values
	maxListed      = 64        // entries of a list in a detail
)

// Build builds the waterfall of the turn of the input at seq. commits are its session's, in
// order, from the one that took up the input; those that do not concern the turn may be
// missing. A span that has not ended extends until now. Build is pure: the same arguments
// give the same timeline.
func Build(seq uint64, commits []turn.Stored, now time.Time) Timeline {
	b := &builder{
		id: event.TurnID(seq), in: turn.Input{Sequence: seq},
		plans: map[string]*plan{}, considered: map[string]event.PlanConsidered{}, steps: map[string]*step{}, owned: map[turn.Part]*span{},
		clip: clipper{most: maxDetailBytes, budget: maxDetails},
	}
	b.line = Timeline{Turn: b.id, Sequence: seq}
	var m moments
	for i, c := range commits {
		if b.in.Over() {
			break
		}
		var next time.Time
		if i+1 < len(commits) {
			next = commits[i+1].Header.Now
		}
		m = momentsOf(c, m, next)
		b.commit(c, m)
	}
	return b.done(now)
}

// TakesUp reports whether a commit takes up the input at seq. One that only says that a core is about to decide about it
// does not.
func TakesUp(c turn.Stored, seq uint64) bool {
	t := c.Header.Trigger
	return t.Sequence == seq && t.Kind != event.ByBegin
}

// span is a Span under construction.
type span struct {
	Span
	start, end time.Time
	closed     bool
	n          int // order of creation
}

// plan is a round of the turn.
type plan struct {
	*span
	attempt *span
	n       int
}

// step is a tool call of the turn.
type step struct {
	*span
	ready   time.Time // when it began to wait
	readyIn uint64    // the commit in which it began to wait
	confirm *span
	run     *span
	runs    int
}

type builder struct {
	id   string
	in   turn.Input
	line Timeline
	all  []*span
	clip clipper

	sense, queue *span
	plans        map[string]*plan
	considered   map[string]event.PlanConsidered // by plan, until the plan is requested
	steps        map[string]*step
	owned        map[turn.Part]*span // what hooks' verdicts are about

	// The commit that is being read.
	c turn.Stored
	m moments
}

// open begins a span.
func (b *builder) open(id, parent string, lane Lane, kind Kind, name string, at time.Time) *span {
	s := &span{Span: Span{ID: id, Parent: parent, Lane: lane, Kind: kind, Name: line(name, 200)}, start: at, n: len(b.all)}
	s.Detail.Commit = b.c.Sequence
	b.all = append(b.all, s)
	return s
}

// shut ends a span, once.
func (b *builder) shut(s *span, at time.Time, st Status) {
	if s == nil || s.closed {
		return
	}
	s.end, s.Status, s.closed, s.Detail.Ended = later(s.start, at), st, true, b.c.Sequence
}

// mark adds a point in time.
func (b *builder) mark(id, parent string, lane Lane, kind Kind, name string, at time.Time, st Status) *span {
	s := b.open(id, parent, lane, kind, name, at)
	s.end, s.Status, s.closed = at, st, true
	return s
}

func (b *builder) commit(c turn.Stored, m moments) {
	b.c, b.m = c, m
	trigger := c.Header.Trigger
	if TakesUp(c, b.in.Sequence) && b.sense == nil {
		b.line.Agent, b.line.Session = c.Ref.Agent, c.Ref.Session
		b.line.Started, b.line.Writer = m.began, trigger.Writer
		b.sense = b.open("sense", "", LaneSense, KindSense, "sense", m.began)
		b.owned[turn.Sense(b.in.Sequence)] = b.sense
	}
	reader := b.reader()
	for _, e := range c.Events {
		b.in.See(e)
		if e.Type != event.TypeAudited || e.Turn == b.id {
			_ = reader.Visit(e)
		}
	}
	b.hooks()
	// The input was taken up after its plugins had answered.
	end := b.asked(turn.Sense(b.in.Sequence))
	if end.IsZero() {
		end = m.first
	}
	b.shut(b.sense, end, StatusOK)
}

// asked returns when the last plugin that was asked about the part in this commit had
// answered; zero: none was asked.
func (b *builder) asked(part turn.Part) (end time.Time) {
	for _, a := range b.m.asked {
		if a.about == part {
			end = later(end, a.end)
		}
	}
	return end
}

// after returns the same, or when core began to decide if that is later.
func (b *builder) after(part turn.Part) time.Time { return later(b.m.began, b.asked(part)) }

// before returns when the first plugin was asked about the part in this commit, or else
// at.
func (b *builder) before(part turn.Part, at time.Time) time.Time {
	for _, a := range b.m.asked {
		if a.about == part {
			return a.start
		}
	}
	return at
}

// hooks adds the commit's verdicts below the spans that they are about.
func (b *builder) hooks() {
	for i, a := range b.m.asked {
		owner := b.owned[a.about]
		if owner == nil {
			continue // belongs to another turn
		}
		parent := owner.ID
		if owner.Kind == KindEnd {
			parent = ""
		}
		st := StatusOK
		switch {
		case a.Verb == "deny":
			st = StatusDenied
		case a.Error != "":
			st = StatusFailed
		case a.Verb == "confirm":
			st = StatusAsked
		}
		id := fmt.Sprintf("h%d.%d", b.c.Sequence, i)
		s := b.open(id, parent, LaneHook, KindHook, string(a.Plugin)+" at "+string(a.Point), a.start)
		s.end, s.closed, s.Status = a.end, true, st
		s.Detail.Plugin, s.Detail.Point, s.Detail.Verb = a.Plugin, a.Point, a.Verb
		s.Detail.Reason, s.Detail.Error, s.Detail.Call = text.Cut(a.Reason, 1000), text.Cut(a.Error, 1000), a.Step
	}
}

// reader returns what the builder does with the events of its session. It passes over what
// cannot be read.
func (b *builder) reader() event.Visitor {
	return event.Visitor{
		Perceived:       b.perceived,
		PlanConsidered:  b.planConsidered,
		PlanRequested:   b.planRequested,
		PlanCompleted:   b.planCompleted,
		Audited:         b.audited,
		ToolCallRequest: b.confirmAsked,
		ActConfirmed:    b.confirmed,
		ActRequested:    b.actRequested,
		ActCompleted:    b.actCompleted,
		Recorded:        b.recorded,
		TurnFailed:      b.turnFailed,
	}
}

func (b *builder) perceived(p event.Perceived) {
	if p.Sequence != b.in.Sequence {
		return
	}
	if p.Disposition == event.FromQueue {
		b.shut(b.queue, b.m.began, StatusOK)
		return
	}
	if b.sense == nil {
		return // cannot happen: it is always taken up in its own commit
	}
	b.line.Writer, b.line.Source = p.Writer, p.Source
	b.line.Text, _ = b.clip.text(p.Text)
	d := &b.sense.Detail
	d.By, d.Source, d.Notes = p.Writer, p.Source, b.list(p.Annotations, d)
	if p.Disposition == event.Queued {
		b.queue = b.open("queue", "", LaneSense, KindQueue, "waits for the previous turn", b.m.decided)
	}
}

// list shortens a list of texts, which are the notes of d.
func (b *builder) list(texts []string, d *Detail) []string {
	some := texts[:min(len(texts), maxListed)]
	whole := len(some) == len(texts)
	out := make([]string, len(some))
	for i, t := range some {
		var cut bool
		out[i], cut = b.clip.text(t)
		whole = whole && !cut
	}
	d.whole("notes", whole)
	return out
}

// done closes open spans, and sorts and limits the result.
func (b *builder) done(now time.Time) Timeline {
	b.alone()
	end := b.line.Started
	for _, s := range b.all {
		end = later(end, later(s.start, s.end))
	}
	if !b.in.Over() {
		end = later(end, now)
	}
	for _, s := range b.all {
		if !s.closed {
			s.end, s.Status = end, StatusOpen
		}
	}
	b.cover()
	outcome, _, reason := outcomeOf(&b.in)
	b.line.Outcome, b.line.Reason = outcome, text.Cut(reason, 1000)
	b.line.DurationMS = end.Sub(b.line.Started).Milliseconds()
	b.line.Spans = b.tree(b.bound())
	return b.line
}

// alone removes spans that add nothing to their parent: the run of a step without other
// spans, and the only attempt at a model call.
func (b *builder) alone() {
	inside, attempts := map[string]int{}, map[string]int{}
	for _, s := range b.all {
		inside[s.Parent]++
		if s.Kind == KindAttempt {
			attempts[s.Parent]++
		}
	}
	b.all = slices.DeleteFunc(b.all, func(s *span) bool {
		return s.Kind == KindRun && inside[s.Parent] == 1 || s.Kind == KindAttempt && attempts[s.Parent] == 1
	})
}

// cover makes every parent as long as its children.
func (b *builder) cover() {
	byID := make(map[string]*span, len(b.all))
	for _, s := range b.all {
		byID[s.ID] = s
	}
	for _, s := range slices.Backward(b.all) { // children are created after their parents
		if p := byID[s.Parent]; p != nil {
			p.end = later(p.end, s.end)
			if s.start.Before(p.start) {
				p.start = s.start
			}
		}
	}
}

// bound drops spans over the limit: hooks first, then the contents of steps, the last ones
// first.
func (b *builder) bound() []*span {
	over := len(b.all) - maxSpans
	if over <= 0 {
		return b.all
	}
	for _, kinds := range [][]Kind{
		{KindHook}, {KindPolicy, KindWait, KindAttempt}, {KindRun, KindConfirm}, {KindStep}, {KindPlan},
	} {
		if over <= 0 {
			break
		}
		dropped := map[string]bool{}
		for _, s := range slices.Backward(b.all) {
			if len(dropped) < over && slices.Contains(kinds, s.Kind) {
				dropped[s.ID] = true
			}
		}
		if len(dropped) == 0 {
			continue
		}
		over -= len(dropped)
		b.all = slices.DeleteFunc(b.all, func(s *span) bool { return dropped[s.ID] })
		b.line.Cut = append(b.line.Cut, fmt.Sprintf(
			"the last %d spans (%s) are left out; the limit of a timeline is %d", len(dropped), join(kinds), maxSpans))
	}
	return b.all
}

// tree orders spans by time, with children after their parents.
func (b *builder) tree(all []*span) []Span {
	children := map[string][]*span{}
	there := map[string]bool{"": true}
	for _, s := range all {
		there[s.ID] = true
	}
	for _, s := range all {
		if !there[s.Parent] {
			s.Parent = ""
		}
		children[s.Parent] = append(children[s.Parent], s)
	}
	out := make([]Span, 0, len(all))
	var put func(parent string)
	put = func(parent string) {
		list := children[parent]
		slices.SortStableFunc(list, func(x, y *span) int { return cmp.Or(x.start.Compare(y.start), x.n-y.n) })
		for _, s := range list {
			s.StartUS = s.start.Sub(b.line.Started).Microseconds()
			s.DurationUS = s.end.Sub(s.start).Microseconds()
			out = append(out, s.Span)
			put(s.ID)
		}
	}
	put("")
	return out
}

func join(kinds []Kind) string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
	}
	return strings.Join(out, ", ")
}

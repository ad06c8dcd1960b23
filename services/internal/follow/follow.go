// Package follow delivers a session's events to a user interface: in order,
// none missing, none twice (rule 16).
//
// Live copies are the fast path. They carry their position in the log
// (commit, index, number of events, previous commit), so a gap is detected, and
// filled by reading the log. Copies that the bus lost at the end are found by reading
// the last commit from time to time.
package follow

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
)

// Item is an event and its place in the log, or a token delta or a piece of what
// a tool prints, which have none, or a whole commit before its events, for callers
// that ask for it.
type Item struct {
	Commit uint64 // stream sequence; 0: a message that is in no commit
	Index  int    // in the commit, from 0
	Event  event.Event
	Delta  *provider.Delta // instead of Event
	Output *tool.Output    // likewise
	Whole  *event.Commit   // likewise; the index is -1
	Turn   string          // of Delta and Output, according to their sender
}

// Position is a place between two events: after Index of Commit.
type Position struct {
	Commit uint64
	Index  int // of the last event seen; -1: none of that commit; [All]
}

// All is the index of a position after a commit's last event.
const All = 1 << 30

// Options of following.
type Options struct {
	Log *slog.Logger
	// Commits is called at each commit and returns whether it is also needed whole. While
	// it is, every commit is read from the log, as live copies lack its
	// header. Nil: never.
	Commits func() bool
	// Each receives the items, one after another, instead of the channel, which then only
	// closes at the end. This saves one wake-up per item.
	Each func(Item)
	// Silent leaves out token deltas and what tools print.
	Silent bool
	// Check ends following when the log no longer holds the position: it was replaced,
	// or restored from an older copy. The channel is closed before the context ends then.
	Check bool
	// LastID is the id of the last event of the position, for Check; empty if unknown.
	LastID string
}

// lookEvery is how often the last commit is read in case the bus lost a copy.
const lookEvery = 2 * time.Second

// Follow sends the items after from until ctx ends, then closes the channel.
// It waits for a slow reader.
func Follow(
	ctx context.Context, b *journal.Journal, ref subject.Ref, from Position, log *slog.Logger,
) (<-chan Item, error) {
	return With(ctx, b, ref, from, Options{Log: log})
}

// With is [Follow] with options.
func With(ctx context.Context, b *journal.Journal, ref subject.Ref, from Position, o Options) (<-chan Item, error) {
	if o.Commits == nil {
		o.Commits = func() bool { return false }
	}
	f := &follower{
		bus: b, ref: ref, log: o.Log, commits: o.Commits, each: o.Each, check: o.Check,
		at: from, id: o.LastID, complete: from.Index >= All || from.Commit == 0,
		live: make(chan *nats.Msg, 8192), out: make(chan Item, 64),
	}
	var subs []*nats.Subscription
	subjects := []string{ref.Live("*", "*"), ref.Stream()}
	if o.Silent {
		subjects = subjects[:1]
	}
	for _, subj := range subjects {
		s, err := b.Conn().ChanSubscribe(subj, f.live)
		if err != nil {
			return nil, fmt.Errorf("following %s: subscribing to %s: %w", ref, subj, err)
		}
		subs = append(subs, s)
	}
	if err := b.Conn().FlushWithContext(flushContext(ctx)); err != nil {
		f.log.Debug("follow: flushing", "error", err)
	}
	go func() {
		defer close(f.out)
		defer func() {
			for _, s := range subs {
				_ = s.Unsubscribe() // the connection may be gone
			}
		}()
		f.run(ctx)
	}()
	return f.out, nil
}

func flushContext(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return ctx
	}
	c, cancel := context.WithTimeout(ctx, 5*time.Second)
	context.AfterFunc(c, cancel)
	return c
}

// End returns the position after the session's last commit.
func End(ctx context.Context, b *journal.Journal, ref subject.Ref) (Position, error) {
	m, err := b.LastCommitSeq(ctx, ref)
	return Position{Commit: m, Index: All}, err
}

type follower struct {
	bus      *journal.Journal
	ref      subject.Ref
	log      *slog.Logger
	commits  func() bool
	each     func(Item)
	check    bool
	at       Position
	id       string // of the last event that was sent of at.Commit; empty if unknown
	complete bool   // every event of at.Commit was sent
	doubt    bool   // the log may not hold at any more
	behind   int    // number of answers from copies of the log that end before at
	live     chan *nats.Msg
	out      chan Item
}

func (f *follower) run(ctx context.Context) {
	back := f.bus.Reconnected()
	f.fill(ctx, true)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if f.check && f.doubt && !f.settle(ctx, tick.C) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-back:
			back, f.doubt = f.bus.Reconnected(), true
		case m := <-f.live:
			f.onLive(ctx, m)
		case <-tick.C:
			f.look(ctx)
		}
	}
}

// look reads the last commit in case the bus lost a copy.
func (f *follower) look(ctx context.Context) {
	switch last, err := f.bus.LastCommitSeq(ctx, f.ref); {
	case err != nil:
	case last < f.at.Commit:
		f.doubt = true
	case last > f.at.Commit || !f.complete && last > 0:
		f.fill(ctx, false)
	}
}

func (f *follower) onLive(ctx context.Context, m *nats.Msg) {
	if f.bus.Foreign(m) {
		return
	}
	e, err := event.Decode(m.Data)
	if err != nil || e.Ref() != f.ref {
		return // not one of core's
	}
	switch e.Type {
	case event.TypeDelta:
		var d provider.Delta
		if e.DataAs((*delta)(&d)) == nil {
			f.send(ctx, Item{Delta: &d, Turn: e.Turn})
		}
		return
	case event.TypeOutput:
		var o tool.Output
		if e.DataAs((*output)(&o)) == nil {
			f.send(ctx, Item{Output: &o, Turn: e.Turn})
		}
		return
	}
	commit, index, count, prev, ok := place(m.Header)
	switch {
	case !ok && e.Type == event.TypeUIMessage: // it is in no commit: why the session does not continue
		f.send(ctx, Item{Event: e})
	case ok && f.contradicts(commit, index, count, e.ID):
		f.doubt = true
	case !ok, commit < f.at.Commit, commit == f.at.Commit && (f.complete || index <= f.at.Index):
	case commit == f.at.Commit && index == f.at.Index+1, f.complete && prev == f.at.Commit && index == 0 && !f.commits():
		f.emit(ctx, Item{Commit: commit, Index: index, Event: e}, count)
	default:
		f.fill(ctx, f.complete && prev == f.at.Commit)
	}
}

type delta provider.Delta

func (delta) EventType() event.Type { return event.TypeDelta }

type output tool.Output

func (output) EventType() event.Type { return event.TypeOutput }

func (f *follower) emit(ctx context.Context, i Item, count int) {
	f.at, f.id, f.complete = Position{i.Commit, i.Index}, i.Event.ID, i.Index == count-1
	f.send(ctx, i)
}

func (f *follower) send(ctx context.Context, i Item) {
	if f.each != nil {
		f.each(i)
		return
	}
	select {
	case f.out <- i:
	case <-ctx.Done():
	}
}

// fill reads from the log what is missing in the live copies. Unless it is known that the
// log holds the position, it checks the position's commit first.
func (f *follower) fill(ctx context.Context, sure bool) {
	sure = sure || !f.check || f.at.Commit == 0
	after := f.at.Commit
	if after > 0 && (!f.complete || !sure) {
		after--
	}
	for m, err := range f.bus.Commits(ctx, f.ref, after) {
		if err != nil {
			f.log.Debug("follow: reading the log", "session", f.ref, "error", err)
			return
		}
		c, err := event.DecodeCommit(f.ref, m.Data)
		if !sure && !f.isAt(m.Seq, c, err) {
			f.doubt = true
			return
		}
		sure = true
		if err != nil {
			if m.Seq != f.at.Commit { // else it was logged
				f.log.Warn("follow: a commit cannot be read", "session", f.ref, "commit", m.Seq, "error", err)
			}
			f.at, f.id, f.complete = Position{m.Seq, All}, "", true
			continue
		}
		f.sendCommit(ctx, m.Seq, c)
	}
}

// sendCommit sends the events of a commit that were not sent yet.
func (f *follower) sendCommit(ctx context.Context, seq uint64, c event.Commit) {
	if seq != f.at.Commit {
		if f.id = ""; f.commits() {
			f.send(ctx, Item{Commit: seq, Index: -1, Whole: &c})
		}
	}
	for i, e := range c.Events {
		if seq == f.at.Commit && i <= f.at.Index {
			continue
		}
		f.emit(ctx, Item{Commit: seq, Index: i, Event: e}, len(c.Events))
	}
	f.at, f.complete = Position{seq, All}, true
}

// place reads a live copy's position in the log.
func place(h nats.Header) (commit uint64, index, count int, prev uint64, ok bool) {
	commit, err1 := strconv.ParseUint(h.Get(journal.HeaderCommit), 10, 64)
	index, err2 := strconv.Atoi(h.Get(journal.HeaderIndex))
	count, err3 := strconv.Atoi(h.Get(journal.HeaderEvents))
	prev, err4 := strconv.ParseUint(h.Get(journal.HeaderPrev), 10, 64)
	return commit, index, count, prev, err1 == nil && err2 == nil && err3 == nil && err4 == nil
}

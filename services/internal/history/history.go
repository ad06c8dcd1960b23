// Package history reads a session's latest turns from the log, backwards from its
// end, and describes them in words.
//
// It reads only commits, and at most as many as the caller allows, so that a session with a
// long past costs no more than a short one. It keeps nothing, publishes nothing,
// and stops at a commit that cannot be read.
package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/turn"
)

// ErrNoTurn means that the log has no such turn, or that it is too far back.
var ErrNoTurn = errors.New("no such turn")

// MaxCommits is how many commits are read at most.
const MaxCommits = 2000

// Turn holds the commits of one turn, oldest first.
type Turn struct {
	turn.Input
	Commits []Commit
	Partial bool // its beginning is too far back
}

// Commit is the part of a commit that is about one turn.
type Commit struct {
	Sequence uint64
	At       time.Time
	Hooks    []Verdict
	Events   []event.Event
}

// Verdict is what a hook said about a part of the turn.
type Verdict struct {
	hook.Verdict
	About turn.Part
}

// Last returns the session's last n turns, oldest first: fewer if there are fewer,
// and [ErrNoTurn] if there is none. A running turn is included.
func Last(ctx context.Context, log turn.Log, ref subject.Ref, n int) ([]Turn, error) {
	turns, err := read(ctx, log, ref, func(turns []*Turn) bool {
		return len(turns) >= n && !slices.ContainsFunc(turns[:n], func(t *Turn) bool { return !t.Whole() })
	})
	if len(turns) > n {
		turns = turns[len(turns)-n:]
	}
	if err == nil && len(turns) == 0 {
		err = ErrNoTurn
	}
	return turns, err
}

// Find returns one turn by its id, or [ErrNoTurn].
func Find(ctx context.Context, log turn.Log, ref subject.Ref, id string) (Turn, error) {
	turns, err := read(ctx, log, ref, func(turns []*Turn) bool {
		return slices.ContainsFunc(turns, func(t *Turn) bool { return t.Turn == id && t.Whole() })
	})
	if err != nil {
		return Turn{}, err
	}
	i := slices.IndexFunc(turns, func(t Turn) bool { return t.Turn == id })
	if i < 0 {
		return Turn{}, ErrNoTurn
	}
	return turns[i], nil
}

// read collects turns, the last one first, until enough returns true.
func read(ctx context.Context, log turn.Log, ref subject.Ref, enough func([]*Turn) bool) ([]Turn, error) {
	if _, err := log.LastCommit(ctx, ref); errors.Is(err, bus.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the last commit of %s: %w", ref, err)
	}
	r := &reader{byID: map[string]*Turn{}}
	n := 0
	for c, err := range turn.Back(ctx, log, ref, 0) {
		if err != nil {
			break
		}
		r.take(c)
		if n++; n == MaxCommits || enough(r.turns) {
			break
		}
	}
	if err := ctx.Err(); err != nil && len(r.turns) == 0 {
		return nil, fmt.Errorf("reading the log of %s: %w", ref, err)
	}
	out := make([]Turn, 0, len(r.turns))
	for _, t := range slices.Backward(r.turns) {
		slices.Reverse(t.Commits)
		t.Partial = t.Perceived.Sequence == 0
		out = append(out, *t)
	}
	return out, nil
}

type reader struct {
	byID  map[string]*Turn
	turns []*Turn // the last one first
}

func (r *reader) turn(id string) *Turn {
	t := r.byID[id]
	if t == nil {
		t = &Turn{Input: turn.Input{Sequence: turn.SequenceOf(id), Turn: id}}
		r.byID[id] = t
		r.turns = append(r.turns, t)
	}
	return t
}

// take adds a commit to the turns that it is about.
func (r *reader) take(c turn.Stored) {
	var ids []string // in the order of the events
	parts := map[string][]event.Event{}
	for _, e := range c.Events {
		if e.Turn == "" {
			_ = event.Visitor{Perceived: func(p event.Perceived) {
				for _, t := range r.turns { // the input of one may have waited
					t.Perceive(e, p)
				}
			}}.Visit(e) // what cannot be read is the input of none
			continue
		}
		if parts[e.Turn] == nil {
			ids = append(ids, e.Turn)
		}
		parts[e.Turn] = append(parts[e.Turn], e)
	}
	verdicts := map[string][]Verdict{}
	for i, about := range turn.PartsOf(c.Commit) {
		verdicts[about.Turn] = append(verdicts[about.Turn], Verdict{c.Header.Hooks[i], about})
	}
	for _, id := range slices.Backward(ids) {
		t := r.turn(id)
		t.Commits = append(t.Commits, Commit{
			Sequence: c.Sequence, At: c.Header.Now, Hooks: verdicts[id], Events: parts[id],
		})
		for _, e := range parts[id] {
			t.See(e)
		}
	}
}

package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/store"
)

// Loader brings states up to the log.
type Loader struct {
	Bus    *bus.Bus
	Store  store.Store
	Log    *slog.Logger
	Folded func(ref subject.Ref, c event.Commit, seq uint64) // every commit that is folded; may be nil
}

// Load returns the state of the session at its last commit. It starts from
// from, if that is given and still fits the log, else from the snapshot, else
// from the first commit.
func (l *Loader) Load(ctx context.Context, ref subject.Ref, from *decide.State) (*decide.State, error) {
	if from == nil {
		from = l.snapshot(ctx, ref)
	}
	if from != nil {
		s, err := l.fold(ctx, ref, from)
		if err == nil || !mismatch(err) {
			return s, err
		}
		l.Log.Warn("the tail of the log does not fit; refolding from the beginning", "session", ref, "error", err)
	}
	return l.Rebuild(ctx, ref)
}

// Rebuild folds the session from its first commit, looking at nothing else.
func (l *Loader) Rebuild(ctx context.Context, ref subject.Ref) (*decide.State, error) {
	return l.fold(ctx, ref, decide.New(ref))
}

// fold applies the commits after s. One that does not fit is an error that wraps
// decide.ErrMismatch or event.ErrMalformed, unless a checkpoint follows it.
func (l *Loader) fold(ctx context.Context, ref subject.Ref, s *decide.State) (*decide.State, error) {
	var broken error
	for m, err := range l.Bus.Commits(ctx, ref, s.Rev) {
		if err != nil {
			return nil, fmt.Errorf("reading commits of %s after %d: %w", ref, s.Rev, err)
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if err == nil && decide.IsCheckpoint(c) {
			s, broken = decide.At(ref, c.Header.Prev), nil
		}
		if broken != nil {
			continue
		}
		var next *decide.State
		if err == nil {
			next, err = s.Apply(c, m.Seq)
		}
		if err != nil {
			broken = fmt.Errorf("commit %d: %w", m.Seq, err)
			continue
		}
		s = next
		if l.Folded != nil {
			l.Folded(ref, c, m.Seq)
		}
	}
	return s, broken
}

// Survey reads the log of a session that cannot be folded.
func (l *Loader) Survey(ctx context.Context, ref subject.Ref, why error) (decide.Wreck, error) {
	w := decide.Wreck{Ref: ref, Why: why.Error()}
	open := map[uint64]bool{}
	for m, err := range l.Bus.Commits(ctx, ref, 0) {
		if err != nil {
			return w, fmt.Errorf("reading commits of %s: %w", ref, err)
		}
		w.Last = m.Seq
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			continue
		}
		w.Cursor = max(w.Cursor, min(c.Header.Cursor, m.Seq)) // no commit has seen what came after it
		for i := range c.Events {
			note(open, c.Events[i])
		}
	}
	for seq := range open {
		w.Open = append(w.Open, seq)
	}
	slices.Sort(w.Open)
	return w, nil
}

// note keeps book of the inputs that are open.
func note(open map[uint64]bool, e event.Event) {
	switch e.Type {
	case event.TypePerceived:
		var p event.Perceived
		if e.DataAs(&p) == nil && p.Disposition != event.EndedAtOnce {
			open[p.Sequence] = true
		}
	case event.TypeRecorded:
		var p event.Recorded
		if e.DataAs(&p) == nil {
			delete(open, p.Sequence)
		}
	case event.TypeTurnFailed:
		var p event.TurnFailed
		if e.DataAs(&p) == nil {
			delete(open, p.Sequence)
		}
	}
}

func mismatch(err error) bool {
	return errors.Is(err, decide.ErrMismatch) || errors.Is(err, event.ErrMalformed)
}

// snapshot returns the stored state, or nil if there is none that the commit it
// claims to stand at confirms (rule 15).
func (l *Loader) snapshot(ctx context.Context, ref subject.Ref) *decide.State {
	snap, err := l.Store.LoadSnapshot(ctx, store.Key{Agent: string(ref.Agent), Session: string(ref.Session)})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		var s *decide.State
		if s, err = l.confirm(ctx, ref, snap); err == nil {
			return s
		}
	}
	l.Log.Warn("no use of a snapshot; refolding", "session", ref, "error", err)
	return nil
}

func (l *Loader) confirm(ctx context.Context, ref subject.Ref, snap store.Snapshot) (*decide.State, error) {
	if snap.FoldVersion != decide.FoldVersion {
		return nil, fmt.Errorf("it was folded by version %d, this is %d", snap.FoldVersion, decide.FoldVersion)
	}
	m, err := l.Bus.Message(ctx, snap.Rev)
	if err != nil {
		return nil, fmt.Errorf("reading commit %d: %w", snap.Rev, err)
	}
	if m.Subject != ref.Commit() {
		return nil, fmt.Errorf("message %d is on %s", snap.Rev, m.Subject)
	}
	c, err := event.DecodeCommit(ref, m.Data)
	if err != nil {
		return nil, err
	}
	return decide.FromSnapshot(snap.Data, ref, c, snap.Rev)
}

// Save writes the state as a snapshot.
func (l *Loader) Save(ctx context.Context, s *decide.State) error {
	data, err := s.Snapshot()
	if err != nil {
		return fmt.Errorf("encoding snapshot of %s: %w", s.Ref, err)
	}
	return l.Store.SaveSnapshot(ctx, store.Key{Agent: string(s.Ref.Agent), Session: string(s.Ref.Session)}, store.Snapshot{
		FoldVersion: decide.FoldVersion, Rev: s.Rev, Digest: s.Digest, Updated: s.Now,
		Phase: string(s.UI), Title: s.Title, Turns: s.Turns, Data: data,
	})
}

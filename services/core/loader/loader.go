package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

// Loader brings states up to date with the log.
type Loader struct {
	Bus    *journal.Journal
	Store  store.Store
	Log    *slog.Logger
	Folded func(ref subject.Ref, c event.Commit, seq uint64) // called for every folded commit; may be nil
	// Spoiled is called for a session whose snapshot cannot be the result of a fold;
	// may be nil.
	Spoiled func(ref subject.Ref)
	// Loads counts how often the commits of a session were read to bring its state up to date.
	Loads atomic.Int64
}

// ErrSpoiled means that a snapshot differs from the fold of its log. A snapshot at a
// commit that the log no longer has is not spoiled: it may be all that is left.
var ErrSpoiled = errors.New("spoiled snapshot")

// Load returns the state of the session at its last commit. It starts from the
// given state if that still fits the log, else from the snapshot, else from the
// first commit. The error is a [*Damage] if the log cannot be folded, or lacks
// commits that it once held.
func (l *Loader) Load(ctx context.Context, ref subject.Ref, from *decide.State) (*decide.State, error) {
	known := make([]*decide.State, 0, 2)
	for _, find := range []func() *decide.State{
		func() *decide.State { return from },
		func() *decide.State { return l.snapshot(ctx, ref) },
	} {
		base := find()
		if base == nil || base.Rev == 0 {
			continue
		}
		s, err := l.resume(ctx, ref, base)
		if err == nil || !Mismatch(err) {
			return s, err
		}
		l.Log.Warn("a state does not match the log; refolding from the beginning", "session", ref, "revision", base.Rev,
			"error", err)
		known = append(known, base)
	}
	f, err := l.fold(ctx, ref, decide.New(ref))
	if err != nil && !Mismatch(err) {
		return nil, err
	}
	return l.compare(ctx, f, err, known)
}

// Rebuild folds the session from its first commit, without any saved state.
func (l *Loader) Rebuild(ctx context.Context, ref subject.Ref) (*decide.State, error) {
	f, err := l.fold(ctx, ref, decide.New(ref))
	return f.state, err
}

// resume folds the commits after base. Either the commit at base confirms base, or the
// next one does, because it folds onto no other state.
func (l *Loader) resume(ctx context.Context, ref subject.Ref, base *decide.State) (*decide.State, error) {
	f, err := l.fold(ctx, ref, base)
	if err == nil && !f.confirmed {
		err = fmt.Errorf("%w: commit %d is not in the log", decide.ErrMismatch, base.Rev)
	}
	return f.state, err
}

// folded is the result of a fold.
type folded struct {
	state     *decide.State // at the last commit that fits
	confirmed bool          // the initial state matches the log
	anew      time.Time     // time of the last checkpoint at which folding restarted
}

// fold applies the commits after s, and checks the one at s. For a commit that does
// not fit, the error wraps decide.ErrMismatch or event.ErrMalformed. A checkpoint
// after it clears the error, except for the commit at s.
func (l *Loader) fold(ctx context.Context, ref subject.Ref, s *decide.State) (folded, error) {
	l.Loads.Add(1)
	f := folded{state: s}
	var broken error
	for m, err := range l.Bus.Commits(ctx, ref, max(s.Rev, 1)-1) {
		if err != nil {
			return f, fmt.Errorf("reading commits of %s after %d: %w", ref, f.state.Rev, err)
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if m.Seq == s.Rev {
			if err == nil {
				err = s.Confirm(c)
			}
			if err != nil {
				return f, fmt.Errorf("%w: commit %d differs: %w", decide.ErrMismatch, m.Seq, err)
			}
			f.confirmed = true
			continue
		}
		from, checkpoint := f.state, err == nil && decide.IsCheckpoint(c)
		if checkpoint {
			from = decide.At(ref, c.Header.Prev)
		} else if broken != nil {
			continue
		}
		var next *decide.State
		if err == nil {
			next, err = from.Apply(c, m.Seq)
		}
		if checkpoint && err == nil {
			f.anew, broken = c.Header.Now, nil
		}
		if err != nil {
			broken = fmt.Errorf("commit %d: %w", m.Seq, err)
			continue
		}
		f.state, f.confirmed = next, true
		if l.Folded != nil {
			l.Folded(ref, c, m.Seq)
		}
	}
	return f, broken
}

// snapshot returns the stored state if it is intact, or nil. The caller must still check
// it against the session's log (rule 15).
func (l *Loader) snapshot(ctx context.Context, ref subject.Ref) *decide.State {
	if l.Store == nil {
		return nil
	}
	snap, err := l.Store.LoadSnapshot(ctx, store.KeyOf(ref))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil && snap.FoldVersion != decide.FoldVersion {
		err = fmt.Errorf("it was folded by version %d, this core folds with version %d", snap.FoldVersion, decide.FoldVersion)
	}
	spoiled := false
	if err == nil {
		var s *decide.State
		if s, err = decide.Salvage(snap.Data, ref, snap.Rev); err == nil {
			return s
		}
		spoiled = true
	}
	l.Log.Warn("cannot use a snapshot; refolding", "session", ref, "error", err)
	if l.Spoiled != nil && spoiled {
		l.Spoiled(ref)
	}
	return nil
}

// Confirm decodes a snapshot and checks it against the commit at its revision.
func (l *Loader) Confirm(ctx context.Context, ref subject.Ref, snap store.Snapshot) (*decide.State, error) {
	if snap.FoldVersion != decide.FoldVersion {
		return nil, fmt.Errorf("it was folded by version %d, this core folds with version %d", snap.FoldVersion,
			decide.FoldVersion)
	}
	var at struct {
		Rev uint64 `json:"rev"`
	}
	if err := json.Unmarshal(snap.Data, &at); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpoiled, err)
	}
	if at.Rev != snap.Rev {
		return nil, fmt.Errorf("%w: stored as revision %d, but it holds revision %d", ErrSpoiled, snap.Rev, at.Rev)
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
	s, err := decide.FromSnapshot(snap.Data, ref, c, snap.Rev)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpoiled, err)
	}
	return s, nil
}

// Save writes the state as a snapshot.
func (l *Loader) Save(ctx context.Context, s *decide.State) error {
	snap, err := Snapshot(s)
	if err != nil {
		return err
	}
	return l.Store.SaveSnapshot(ctx, store.KeyOf(s.Ref), snap)
}

// PhaseDeleted is the phase, in listings, of sessions that were deleted.
const PhaseDeleted = "deleted"

// Snapshot encodes a state for the store.
func Snapshot(s *decide.State) (store.Snapshot, error) {
	data, err := s.Snapshot()
	if err != nil {
		return store.Snapshot{}, fmt.Errorf("encoding snapshot of %s: %w", s.Ref, err)
	}
	phase := string(s.UI)
	if s.Deleted != nil {
		phase = PhaseDeleted
	}
	above := ""
	if s.Above != nil {
		above = s.Above.String()
	}
	return store.Snapshot{
		Above: above, FoldVersion: decide.FoldVersion, Rev: s.Rev, Digest: s.Digest, Updated: s.Now,
		Phase: phase, Title: s.Title, Turns: s.Turns, Commits: s.Commits, Data: data,
	}, nil
}

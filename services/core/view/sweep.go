package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

const foldVersion = decide.FoldVersion

const (
	sweepBatch = 500 // sessions whose heads are read at once
	auditBatch = 100 // snapshots that are read in full, per comparison
)

// sweep compares every session of the log with the view, by the number of its
// commits. Only [Refill]'s goroutine uses it.
type sweep struct {
	r *Refill

	suspects map[subject.Ref]uint64  // out of date at the last comparison, with their commits
	settled  map[subject.Ref]settled // sessions whose numbers will never agree
	audited  string                  // the last session whose snapshot was read
	folded   int                     // by this sweep
	folding  time.Duration           // how long that took
}

// settled is the state of a session whose log holds more commits than can be folded,
// as of that finding.
type settled struct {
	commits, rev uint64
}

var (
	errLeaseLost = errors.New("another core holds the lease")
	errGap       = errors.New("the statistics were reset meanwhile")
)

func newSweep(r *Refill) sweep {
	return sweep{r: r, suspects: map[subject.Ref]uint64{}, settled: map[subject.Ref]settled{}}
}

// run compares all sessions and folds what is missing. If the view is known to be
// incomplete, it folds at once. Otherwise a session that lags behind has until the next
// comparison, because views are written asynchronously.
func (w *sweep) run(ctx context.Context, what coverage) error {
	r, begun := w.r, time.Now()
	sound, err := r.cfg.Store.VerifyTools(ctx)
	if err != nil {
		return err
	}
	if !sound {
		what.State = filling
	}
	foreign := what.Log != "" && what.Log != r.identity()
	every := foreign || what.State == anew
	complete := what == r.complete()
	during := coverage{State: filling, Log: r.identity()}
	if every {
		during = coverage{State: anew, Log: what.Log}
		if err := r.cfg.Store.ResetTools(ctx); err != nil {
			return err
		}
	}
	if !complete {
		if err := r.setCoverage(ctx, during); err != nil {
			return err
		}
	}
	all, err := r.cfg.Bus.Sessions(ctx, "")
	if err != nil {
		return err
	}
	w.folded, w.folding = 0, 0
	if !complete && len(all) > 0 {
		w.began(len(all), what)
	}
	failed, err := w.compare(ctx, all, every, foreign, complete)
	if err != nil {
		return err
	}
	if foreign {
		if err := w.dropForeign(ctx, all); err != nil {
			return err
		}
	}
	if !complete {
		now, err := r.coverage(ctx)
		if err != nil {
			return err
		}
		if now != during {
			return nil // something was lost meanwhile: the next step sweeps again
		}
		if err := r.setCoverage(ctx, r.complete()); err != nil {
			return err
		}
	} else if err := w.audit(ctx, all); err != nil {
		return err
	}
	r.show(func(v *coreapi.View) {
		*v = coreapi.View{State: coreapi.ViewComplete, Sessions: len(all), Done: len(all) - failed, Failed: failed}
	})
	if w.folded > 0 {
		r.cfg.Log.Info("the view is complete again", "sessions", len(all), "folded", w.folded, "failed", failed,
			"took", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}

// behind returns the sessions of which the view is behind the log, and how many of their commits
// it has; and how many sessions there are.
func (w *sweep) behind(ctx context.Context) (_ map[subject.Ref]uint64, sessions int, _ error) {
	all, err := w.r.cfg.Bus.Sessions(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	found := map[subject.Ref]uint64{}
	for batch := range slices.Chunk(all, sweepBatch) {
		heads, err := w.heads(ctx, batch)
		if err != nil {
			return nil, 0, err
		}
		for i, s := range batch {
			lacks, err := w.lacks(ctx, s, heads[i])
			if err != nil {
				return nil, 0, err
			}
			if lacks {
				found[s.Ref] = heads[i].Commits
			}
		}
	}
	return found, len(all), nil
}

// heads returns what the view has of some sessions.
func (w *sweep) heads(ctx context.Context, sessions []journal.SessionInfo) ([]store.Head, error) {
	keys := make([]store.Key, len(sessions))
	for i, s := range sessions {
		keys[i] = store.KeyOf(s.Ref)
	}
	return w.r.cfg.Store.Heads(ctx, keys)
}

// began reports that a refill begins.
func (w *sweep) began(sessions int, what coverage) {
	why := "it is empty, or something was lost"
	switch {
	case what.Log != "" && what.Log != w.r.identity():
		why = "it belongs to another log"
	case what.State == anew:
		why = "everything must be folded again"
	case what.State == filling:
		why = "some writes failed, or the last refill did not finish"
	case what.State == covered:
		why = "it was folded by another version"
	}
	w.r.cfg.Log.Info("refilling the view from the log", "sessions", sessions, "why", why)
	w.r.show(func(v *coreapi.View) { *v = coreapi.View{State: coreapi.ViewRefilling, Sessions: sessions} })
}

// compare checks all sessions and counts those that cannot be folded. With every it folds
// all of them; with foreign it replaces their entries in the view; with patient it leaves
// those that lag behind until the next comparison.
func (w *sweep) compare(
	ctx context.Context, all []journal.SessionInfo, every, foreign, patient bool,
) (failed int, err error) {
	suspects, done := w.suspects, 0
	w.suspects = map[subject.Ref]uint64{}
	for batch := range slices.Chunk(all, sweepBatch) {
		heads, err := w.heads(ctx, batch)
		if err != nil {
			return failed, err
		}
		for i, s := range batch {
			before, seen := suspects[s.Ref]
			lacks, err := w.lacks(ctx, s, heads[i])
			if err != nil {
				return failed, err
			}
			switch h := heads[i]; {
			case !every && w.settled[s.Ref] == settled{commits: s.Commits}:
				failed++
				continue
			case !every && !lacks:
				done++
				continue
			case patient && (!seen || h.Commits >= before && h.Counted >= h.Rev):
				w.suspects[s.Ref] = s.Commits
				done++
				continue
			}
			if ok, err := w.fold(ctx, s, foreign); err != nil {
				return failed, err
			} else if ok {
				done++
			} else {
				failed++
			}
			if err := w.progress(ctx, len(all), done, failed); err != nil {
				return failed, err
			}
		}
	}
	return failed, nil
}

// dropForeign removes the sessions that only the other log had. One that is newer than this log has been
// created since it was listed, or may be all that is left of a log that was lost; see package loader.
func (w *sweep) dropForeign(ctx context.Context, all []journal.SessionInfo) error {
	log, err := w.r.cfg.Bus.LogState(ctx)
	if err != nil {
		return err
	}
	here := make(map[store.Key]bool, len(all))
	for _, s := range all {
		here[store.KeyOf(s.Ref)] = true
	}
	for after := ""; ; {
		page, next, err := w.r.cfg.Store.ListSessions(ctx, "", store.MaxPage, after)
		if err != nil {
			return err
		}
		for _, s := range page {
			if here[s.Key] || !log.Replaced(s.Updated, loader.ClockSkew) {
				continue
			}
			if err := w.r.cfg.Store.DeleteSession(ctx, s.Key); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// progress publishes how far the sweep is, and keeps the lease.
func (w *sweep) progress(ctx context.Context, sessions, done, failed int) error {
	w.r.show(func(v *coreapi.View) {
		*v = coreapi.View{State: coreapi.ViewRefilling, Sessions: sessions, Done: done, Failed: failed}
	})
	if held, err := w.r.lease(ctx); err != nil || held {
		return err
	}
	return errLeaseLost
}

// lacks reports whether the view is behind the log for a session.
func (w *sweep) lacks(ctx context.Context, s journal.SessionInfo, h store.Head) (bool, error) {
	if at, is := w.settled[s.Ref]; is && at.commits == s.Commits && h.Rev >= at.rev && h.Counted >= at.rev {
		return false, nil
	}
	if h.Rev == 0 || h.FoldVersion < foldVersion || h.Commits < s.Commits || h.Counted < h.Rev {
		return true, nil
	}
	if h.Commits == s.Commits {
		return false, nil
	}
	// If the view has more commits than the log, some have left it, the view belongs to another log, or this log is
	// damaged, which is not decided here.
	last, err := w.r.cfg.Bus.LastCommitSeq(ctx, s.Ref)
	return last > h.Rev, err
}

// fold folds one session that is behind. ok is false if it cannot be folded.
func (w *sweep) fold(ctx context.Context, s journal.SessionInfo, replace bool) (ok bool, err error) {
	begun := time.Now()
	defer func() { w.folding += time.Since(begun) }()
	state, err := w.r.Refold(ctx, s.Ref, replace)
	switch {
	case err == nil:
		w.folded++
		if state.Commits < s.Commits {
			w.settled[s.Ref] = settled{s.Commits, state.Rev}
		}
	case w.hopeless(s.Ref, err):
		w.settled[s.Ref] = settled{commits: s.Commits}
	default:
		return false, err
	}
	if !w.r.Yield(ctx, begun) {
		return false, ctx.Err()
	}
	return err == nil, nil
}

// hopeless reports, and logs, that a session cannot be folded because of its log.
func (w *sweep) hopeless(ref subject.Ref, err error) bool {
	if !loader.Mismatch(err) && !errors.Is(err, decide.ErrNewer) && !errors.Is(err, store.ErrInvalid) {
		return false
	}
	w.r.cfg.Log.Warn("cannot fold a session from the log; the view omits it", "session", ref, "error", err)
	return true
}

// Refold folds a session from its first commit and writes it to the view; replace
// removes the old snapshot.
func (r *Refill) Refold(ctx context.Context, ref subject.Ref, replace bool) (*decide.State, error) {
	var records []store.ToolRecord
	var ends []ended
	last := uint64(0)
	r.cfg.Loader.Loads.Add(1)
	s, err := (&loader.Loader{Bus: r.cfg.Bus, Log: r.cfg.Log, Folded: func(ref subject.Ref, c event.Commit, seq uint64) {
		records = record(records, ref, c, last, seq)
		last = seq
		if leaves(c) {
			ends = append(ends, ended{ref, c})
		}
	}}).Rebuild(ctx, ref)
	if err != nil || s.Rev == 0 {
		return s, err
	}
	for _, e := range ends {
		if err := r.cfg.Learn(ctx, e.ref, e.commit); err != nil {
			return nil, fmt.Errorf("remembering a turn of %s: %w", ref, err)
		}
	}
	gaps, err := r.cfg.Store.RecordTools(ctx, records)
	switch {
	case err != nil:
		return nil, fmt.Errorf("recording tool statistics of %s: %w", ref, err)
	case len(gaps) > 0:
		return nil, fmt.Errorf("recording tool statistics of %s: %w", ref, errGap)
	}
	if replace {
		if err := r.cfg.Store.DeleteSession(ctx, store.KeyOf(ref)); err != nil {
			return nil, err
		}
	}
	r.cfg.Asks(ctx, s)
	return s, r.cfg.Loader.Save(ctx, s)
}

// audit reads some snapshots in full, different ones each time, and replaces those that
// differ from the log.
func (w *sweep) audit(ctx context.Context, all []journal.SessionInfo) error {
	slices.SortFunc(all, func(a, b journal.SessionInfo) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	first, _ := slices.BinarySearchFunc(all, w.audited, func(s journal.SessionInfo, after string) int {
		if s.Ref.String() <= after {
			return -1
		}
		return 1
	})
	if first == len(all) {
		first = 0
	}
	for _, s := range all[first:min(first+auditBatch, len(all))] {
		w.audited = s.Ref.String()
		sound, err := w.sound(ctx, s.Ref)
		if err != nil {
			return err
		}
		if sound {
			continue
		}
		w.r.cfg.Log.Error("a snapshot does not match the log; folding the session again", "session", s.Ref)
		if _, err := w.fold(ctx, s, true); err != nil {
			return err
		}
	}
	return nil
}

// sound reports whether the snapshot and its listed fields match the log, as far as
// can be determined.
func (w *sweep) sound(ctx context.Context, ref subject.Ref) (bool, error) {
	snap, err := w.r.cfg.Store.LoadSnapshot(ctx, store.KeyOf(ref))
	if errors.Is(err, store.ErrNotFound) {
		return true, nil // the comparison finds it
	}
	if err != nil {
		return false, err
	}
	s, err := w.r.cfg.Loader.Confirm(ctx, ref, snap)
	if err != nil {
		return !errors.Is(err, loader.ErrSpoiled), nil
	}
	want, err := loader.Snapshot(s)
	if err != nil {
		return false, err
	}
	want.Updated = store.FromMicros(store.Micros(want.Updated))
	return snap.Digest == want.Digest && snap.Phase == want.Phase && snap.Title == want.Title && snap.Above == want.Above &&
		snap.Turns == want.Turns && snap.Commits == want.Commits && snap.Updated.Equal(want.Updated), nil
}

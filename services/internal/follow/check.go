package follow

import (
	"context"
	"errors"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
)

// maxBehind is how many times a log with several copies may answer that it ends before the
// position before that is believed: a leader that was just elected may lag.
const maxBehind = 5

var errBehind = errors.New("the copy of the log that answered ends before the position")

// contradicts reports whether a live copy has the position of the last event that was
// sent, but is another event.
func (f *follower) contradicts(commit uint64, index, count int, id string) bool {
	same := commit == f.at.Commit && (index == f.at.Index || f.complete && index == count-1)
	return f.check && same && f.id != "" && f.id != id
}

// isAt reports whether a stored commit, or one that cannot be read because of err, is
// the position's.
func (f *follower) isAt(seq uint64, c event.Commit, err error) bool {
	i := min(f.at.Index, len(c.Events)-1)
	return seq == f.at.Commit && (f.id == "" || err == nil && i >= 0 && c.Events[i].ID == f.id)
}

// settle waits until it is known whether the log still holds the position. If it does,
// settle reads what arrived meanwhile and reports true.
func (f *follower) settle(ctx context.Context, tick <-chan time.Time) bool {
	for {
		held, err := f.holds(ctx)
		if err == nil && !held {
			return false
		}
		if err == nil {
			f.doubt, f.behind = false, 0
			f.fill(ctx, true)
			return true
		}
		f.log.Debug("follow: checking the position", "session", f.ref, "commit", f.at.Commit, "error", err)
		select {
		case <-tick:
		case <-ctx.Done():
			return false
		}
	}
}

// holds reports whether the log still holds the position.
func (f *follower) holds(ctx context.Context) (bool, error) {
	if f.at.Commit == 0 {
		return true, nil
	}
	m, err := f.bus.Message(ctx, f.at.Commit)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return f.goesOn(ctx)
	case err != nil:
		return false, err
	case m.Subject != f.ref.Commit():
		return false, nil
	}
	c, err := event.DecodeCommit(f.ref, m.Data)
	return f.isAt(m.Seq, c, err), nil
}

// goesOn reports whether the session continues after the position although its commit is
// not in the log: it was purged or deleted, and later commits exist.
func (f *follower) goesOn(ctx context.Context) (bool, error) {
	log, err := f.bus.LogState(ctx)
	if err != nil {
		return false, err
	}
	if log.Last < f.at.Commit {
		if f.behind++; log.Copies > 1 && f.behind < maxBehind {
			return false, errBehind
		}
		return false, nil
	}
	last, err := f.bus.LastCommitSeq(ctx, f.ref)
	return last >= f.at.Commit, err
}

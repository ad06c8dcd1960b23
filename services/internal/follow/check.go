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
	if m, err := f.bus.Message(ctx, f.at.Commit); !errors.Is(err, bus.ErrNotFound) {
		return f.isPosition(m, err)
	}
	return f.goesOn(ctx)
}

// isPosition reports whether the message that was read is the position's commit.
func (f *follower) isPosition(m bus.StoredMsg, err error) (bool, error) {
	if err != nil || m.Subject != f.ref.Commit() {
		return false, err
	}
	c, err := event.DecodeCommit(f.ref, m.Data)
	return f.isAt(m.Seq, c, err), nil
}

// goesOn reports whether the session continues after the position although its commit was
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
	// A new log may have grown past the position since. From now on nothing is stored there
	// any more.
	if m, err := f.bus.Message(ctx, f.at.Commit); !errors.Is(err, bus.ErrNotFound) {
		return f.isPosition(m, err)
	}
	last, err := f.bus.LastCommitSeq(ctx, f.ref)
	if err != nil || last < f.at.Commit {
		return false, err
	}
	now, err := f.bus.LogState(ctx)
	return now.Created.Equal(log.Created), err
}

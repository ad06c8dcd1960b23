package auditor

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/journal"
)

// blockEntries is how many entries a block has at most, beside those of its last commit.
const blockEntries = 256

// scan audits the commits that are new.
func (a *Auditor) scan(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	before := a.have.chain.Log
	a.unlock()
	log, err := a.cfg.Bus.LogState(ctx)
	if err != nil {
		return err
	}
	if a.lags(log, before) {
		return fmt.Errorf("the log ends at message %d, and %d are audited: the copy that answered may lag", log.Last, before.Sequence)
	}
	base, err := a.position(ctx, log, before)
	if err != nil {
		return err
	}
	r := reading{a: a, base: base, at: audit.Position{Log: log.Created.UTC(), Sequence: base.Sequence}}
	if a.scanned.Log.Equal(r.at.Log) {
		r.at.Sequence = max(r.at.Sequence, a.scanned.Sequence)
	}
	if log.Last <= r.at.Sequence {
		return nil
	}
	for m, err := range a.cfg.Bus.AllCommits(ctx, r.at.Sequence) {
		if err != nil {
			return err
		}
		r.pick(m)
		if len(r.entries) >= blockEntries {
			if over, err := r.flush(ctx); over || err != nil {
				return err
			}
		}
	}
	_, err = r.flush(ctx)
	return err
}

// replaced is how long a leader may answer that others have replaced: without a majority it resigns after ten seconds.
const replaced = 15 * time.Second

// lags reports whether a log that seems to have lost its end may only be a copy that lags.
func (a *Auditor) lags(log journal.LogState, before audit.Position) bool {
	if log.Copies <= 1 || !before.Log.Equal(log.Created) || log.Last >= before.Sequence {
		a.short = time.Time{}
		return false
	}
	if a.short.IsZero() {
		a.short = a.cfg.Now()
	}
	return a.cfg.Now().Sub(a.short) < replaced
}

// position returns how far the audit log says that the log of decisions is audited, after it has noted that this is
// another log now. Before is what it said before the log was asked.
func (a *Auditor) position(ctx context.Context, log journal.LogState, before audit.Position) (at audit.Position, err error) {
	err = a.change(ctx, func(s *state) []audit.Entry {
		at = s.chain.Log
		if !at.Is(before) {
			return nil // another core has audited more since, and the log may have more, too
		}
		why, next := "", audit.Position{Log: log.Created.UTC(), Sequence: min(at.Sequence, log.Last)}
		switch {
		case at.Log.IsZero():
			return nil
		case !at.Log.Equal(log.Created) && log.Restored:
			why = "restored from a backup; audited up to message %d"
		case !at.Log.Equal(log.Created):
			why, next.Sequence = "it was deleted and begins anew, at message %d", 0
		case log.Last < at.Sequence:
			why = "it has lost its end, after message %d"
		default:
			return nil
		}
		return []audit.Entry{{
			Time: a.cfg.Now().UTC(), By: audit.Who{Kind: audit.Core, Name: "core"}, Verb: audit.Renewed, What: "stream " + bus.StreamSessions,
			Detail: fmt.Sprintf(why, next.Sequence), Log: next,
		}}
	})
	return at, err
}

// reading is a read of the log of decisions.
type reading struct {
	a       *Auditor
	base    audit.Position // that the audit log has
	at      audit.Position // that was read
	entries []audit.Entry  // that are not written yet
}

func (r *reading) pick(m bus.StoredMsg) {
	r.at.Sequence = m.Seq
	ref, err := subject.ParseCommit(m.Subject)
	if err != nil {
		return // the stream stores no such subject
	}
	c, err := event.DecodeCommit(ref, m.Data)
	if err != nil {
		r.a.cfg.Log.Warn("a commit cannot be read and is not audited", "session", ref, "commit", m.Seq, "error", err)
		return
	}
	r.entries = append(r.entries, audit.Pick(c, m.Seq, m.Data)...)
}

// flush writes the entries, unless another core has written some of them. over means that it has.
func (r *reading) flush(ctx context.Context) (over bool, err error) {
	if len(r.entries) > 0 {
		err = r.a.append(ctx, func(s *state) []audit.Entry {
			if s.chain.Log.Is(r.at) {
				return nil // written, although the answer was lost
			}
			if over = !s.chain.Log.Is(r.base); over {
				return nil
			}
			for i := range r.entries {
				r.entries[i].Log = r.at
			}
			return r.entries
		})
	}
	if over || err != nil {
		return over, err
	}
	if len(r.entries) > 0 {
		r.base, r.entries = r.at, nil
	}
	r.a.scanned = r.at
	return false, nil
}

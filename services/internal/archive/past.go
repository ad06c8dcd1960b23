package archive

import (
	"context"
	"iter"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Log is the part of the log that [Past] reads; *journal.Journal implements it.
type Log interface {
	Messages(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error]
}

// Past yields the session's messages after a sequence, in order: from the log, which is of an origin, and what has
// left it from the archive. Messages may leave while it reads.
func Past(
	ctx context.Context, log Log, origin Origin, store Store, ref subject.Ref, after uint64,
) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		p := past{yield: yield, at: after, commit: after}
		for m, err := range log.Messages(ctx, ref, after) {
			switch {
			case err != nil:
				yield(m, err)
				return
			case m.Subject != ref.Commit():
				p.causes = append(p.causes, m) // commits before it may have left the log
				continue
			case p.misses(ref, m):
				for a, err := range Read(ctx, store, ref, origin, p.at) {
					if err != nil {
						yield(a, err)
						return
					}
					if a.Seq >= m.Seq {
						break
					}
					if !p.give(a) {
						return
					}
				}
			}
			if p.commit = m.Seq; !p.give(m) {
				return
			}
		}
		p.flush(1 << 63)
	}
}

// past is what was yielded so far.
type past struct {
	yield  func(bus.StoredMsg, error) bool
	at     uint64          // the last message
	commit uint64          // the last commit
	causes []bus.StoredMsg // of the log, that come after it
}

// misses reports whether a commit does not follow the last one.
func (p *past) misses(ref subject.Ref, m bus.StoredMsg) bool {
	c, err := event.DecodeCommit(ref, m.Data)
	return err == nil && c.Header.Prev > p.commit
}

// give yields a message, after the causes before it.
func (p *past) give(m bus.StoredMsg) bool {
	if !p.flush(m.Seq) {
		return false
	}
	if m.Seq <= p.at {
		return true
	}
	p.at = m.Seq
	return p.yield(m, nil)
}

// flush yields the causes before a sequence.
func (p *past) flush(before uint64) bool {
	for len(p.causes) > 0 && p.causes[0].Seq < before {
		m := p.causes[0]
		if p.causes = p.causes[1:]; m.Seq <= p.at {
			continue
		}
		if p.at = m.Seq; !p.yield(m, nil) {
			return false
		}
	}
	return true
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// IsNoise reports whether nobody has written a message of the log: the server has stored it there, as its answer
// to a client that named the subject for it (see schemas/adr/0045). A commit is always stored with a fence, which
// no acknowledgement and no page of the server's API has; what the server reads out of a stream says so itself.
// Both are in the stored headers, so every reader comes to the same result at any time.
func IsNoise(m bus.StoredMsg) bool {
	if bus.IsAnswer(m.Header, m.Data) {
		return true
	}
	if len(m.Header[jetstream.ExpectedLastSubjSeqHeader]) > 0 {
		return false
	}
	_, err := subject.ParseCommit(m.Subject)
	return err == nil
}

// read yields the messages on a filter after a sequence that somebody has written.
func (j *Journal) read(ctx context.Context, filter string, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		for m, err := range j.stored(ctx, filter, after) {
			if err == nil && IsNoise(m) {
				continue
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// stored yields all messages on a filter after a sequence.
func (j *Journal) stored(ctx context.Context, filter string, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		g := bus.Range{Stream: bus.StreamSessions, Filter: filter, After: after}
		single, err := j.copies.single(ctx)
		if err == nil && !single {
			g.Copies = true
			g.UpTo, err = j.leaderLast(ctx, filter)
		}
		if err != nil {
			yield(bus.StoredMsg{}, err)
			return
		}
		if g.Copies && g.UpTo <= after {
			return
		}
		for m, err := range j.data.Messages(ctx, g) {
			if !yield(m, err) {
				return
			}
		}
	}
}

// leaderLast returns the sequence of the leader's last message on the filter.
func (j *Journal) leaderLast(ctx context.Context, filter string) (uint64, error) {
	m, err := j.getFromLeader(ctx, bus.Query{LastFor: filter})
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// tails are the last commits of sessions that noise follows, so that these are not searched for again.
type tails struct {
	mu sync.Mutex
	of map[subject.Ref]tail
}

// tail says which commit is the last one up to a sequence.
type tail struct{ commit, upTo uint64 }

const maxTails = 1024

func (t *tails) get(ref subject.Ref) tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[ref]
}

func (t *tails) set(ref subject.Ref, is tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || len(t.of) >= maxTails {
		t.of = map[subject.Ref]tail{}
	}
	t.of[ref] = is
}

// lastBefore returns the session's last commit, which noise follows up to a sequence.
func (j *Journal) lastBefore(ctx context.Context, ref subject.Ref, upTo uint64) (last bus.StoredMsg, err error) {
	known := j.tails.get(ref)
	if known.upTo > upTo {
		known = tail{} // of another log
	}
	for m, err := range j.read(ctx, ref.Commit(), known.upTo) {
		if err != nil {
			return bus.StoredMsg{}, err
		}
		last = m
	}
	if last.Seq == 0 && known.commit != 0 {
		if last, err = j.getAt(ctx, known.commit); err != nil || last.Subject != ref.Commit() || IsNoise(last) {
			j.tails.set(ref, tail{})
			return bus.StoredMsg{}, fmt.Errorf("reading commit %d: %w", known.commit, errors.Join(bus.ErrUnavailable, err))
		}
	}
	j.tails.set(ref, tail{last.Seq, max(upTo, last.Seq)})
	if last.Seq == 0 {
		return last, fmt.Errorf("reading the log: %w", bus.ErrNotFound)
	}
	return last, nil
}

// onlyNoise reports whether the messages on the session's commit subject after a sequence, up to one that the
// server names as the last, are all noise.
func (j *Journal) onlyNoise(ctx context.Context, ref subject.Ref, after, last uint64) (bool, error) {
	for m, err := range j.stored(ctx, ref.Commit(), after) {
		switch {
		case err != nil:
			return false, err
		case !IsNoise(m):
			return false, nil
		case m.Seq >= last:
			return m.Seq == last, nil
		}
	}
	return false, nil
}

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// The bounds of one batch.
const (
	batchMsgs  = 1000
	batchBytes = 8 << 20
	stallWait  = 1500 * time.Millisecond // without an answer: ask again
)

// Range says which messages of a stream [Link.Messages] reads.
type Range struct {
	Stream string
	Filter string // of their subjects, which may contain wildcards
	After  uint64 // a sequence
	// Copies means that the stream may have several copies. One that lags is asked again, and then the
	// leader, until there is nothing left or UpTo was reached. Without it, the end of any copy is the end.
	Copies bool
	UpTo   uint64 // with Copies: a sequence that the leader has; 0: its last one, whichever that is
}

// Messages yields the messages of a range in order: all that were stored when it was called, and possibly
// some that are stored in the meantime. An error ends the iteration; the messages yielded before are valid. It
// reads by direct get, which needs no consumer.
func (l *Link) Messages(ctx context.Context, g Range) iter.Seq2[StoredMsg, error] {
	return func(yield func(StoredMsg, error) bool) {
		if g.UpTo == 0 {
			g.UpTo = math.MaxUint64
		}
		r := &reader{Range: g, l: l, after: g.After, yield: yield, doing: "reading stream " + g.Stream}
		for !r.end {
			r.batch(ctx)
		}
	}
}

// reader fetches messages in batches by direct get, which any copy of the stream answers. If
// there is one copy, the end of a batch is the end of the stream. If there are several, a copy
// that lags is asked again.
type reader struct {
	Range
	l      *Link
	yield  func(StoredMsg, error) bool
	after  uint64 // the last sequence that was yielded
	doing  string // for errors
	stalls int
	end    bool
}

func (r *reader) emit(m StoredMsg) {
	r.after, r.stalls = m.Seq, 0
	r.end = !r.yield(m, nil)
}

func (r *reader) fail(err error) {
	r.end = true
	r.yield(StoredMsg{}, err)
}

// batch fetches one batch.
func (r *reader) batch(ctx context.Context) {
	req, err := json.Marshal(Query{Seq: r.after + 1, NextFor: r.Filter, Batch: batchMsgs, MaxBytes: batchBytes})
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", r.doing, err))
		return
	}
	// The buffer holds a whole batch and its end, so that the inbox never blocks.
	l, direct := r.l, directGet+r.Stream
	answers, lost := make(chan *nats.Msg, batchMsgs+1), l.Lost()
	reply, forget := l.Listen(direct, func(m *nats.Msg) {
		select {
		case answers <- m:
		default:
		}
	})
	defer forget()
	if err := l.Send(&nats.Msg{Subject: direct, Reply: reply, Data: req}); err != nil {
		r.fail(TransportError(r.doing, err))
		return
	}
	stall := time.NewTimer(stallWait)
	defer stall.Stop()
	for first, over := r.after, false; !r.end && !over; {
		select {
		case m := <-answers:
			over = r.take(ctx, m, first)
			stall.Reset(stallWait)
		case <-lost:
			r.fail(TransportError(r.doing, nats.ErrDisconnected))
		case <-stall.C:
			// Request the rest again: until ctx ends, or twice if it has no deadline.
			if _, ends := ctx.Deadline(); !ends {
				r.stalls++
			}
			if r.stalls > 2 {
				r.fail(TransportError(r.doing, nats.ErrTimeout))
			}
			return
		case <-ctx.Done():
			r.fail(TransportError(r.doing, ctx.Err()))
		}
	}
}

// take handles one answer of the batch that began after a sequence, and reports
// whether the batch is over.
func (r *reader) take(ctx context.Context, m *nats.Msg, first uint64) (over bool) {
	stored, err := ParseDirect(m)
	switch {
	case errors.Is(err, ErrBatchEnd):
		r.batchEnd(ctx, m.Header.Get("Nats-Num-Pending") == "0", first)
		return true
	case errors.Is(err, ErrNotFound):
		r.batchEnd(ctx, true, first)
		return true
	case errors.Is(err, ErrUnreadable):
		r.one(ctx)
		return true
	case err != nil:
		r.fail(err)
		return true
	}
	// The server names the previous message of the batch, so none can be missing.
	want := strconv.FormatUint(r.after, 10)
	if r.after == first {
		want = "0"
	}
	if stored.Prev != want {
		r.fail(fmt.Errorf("%s: message %d follows %q, but the last one received was %s", r.doing, stored.Seq, stored.Prev,
			want))
		return true
	}
	r.emit(stored.StoredMsg)
	return false
}

// batchEnd decides how to continue after a batch: the stream has ended, or there is more, from a
// copy that has more or lags.
func (r *reader) batchEnd(ctx context.Context, last bool, first uint64) {
	switch {
	case !last:
	case !r.Copies || r.after >= r.UpTo:
		r.end = true
	case r.after == first:
		r.one(ctx) // this copy had nothing, but the leader may
	}
}

// one reads the next message through the leader.
func (r *reader) one(ctx context.Context) {
	m, err := r.l.Stored(ctx, r.Stream, Query{Seq: r.after + 1, NextFor: r.Filter})
	switch {
	case errors.Is(err, ErrNotFound):
		r.end = true
	case err != nil:
		r.fail(err)
	default:
		r.emit(m)
	}
}

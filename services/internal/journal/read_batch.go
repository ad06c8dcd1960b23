package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
)

// The bounds of one batch.
const (
	batchMsgs  = 1000
	batchBytes = 8 << 20
	stallWait  = 1500 * time.Millisecond // without an answer: ask again
)

// read yields the messages of the log on a filter after a sequence.
func (j *Journal) read(ctx context.Context, filter string, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return j.readFrom(ctx, bus.StreamSessions, filter, after)
}

// readFrom yields the messages of a stream on a filter after a sequence.
func (j *Journal) readFrom(ctx context.Context, stream, filter string, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		r := &reader{j: j, stream: stream, filter: filter, after: after, yield: yield, copies: true}
		var err error
		if stream == bus.StreamSessions { // of other streams the number of copies is not known
			r.copies, err = j.several(ctx)
		}
		if err == nil && r.copies {
			r.upTo, err = j.leaderLast(ctx, stream, filter)
		}
		if err != nil {
			r.fail(err)
		}
		for !r.end {
			r.batch(ctx)
		}
	}
}

// several reports whether the log has copies that may lag.
func (j *Journal) several(ctx context.Context) (bool, error) {
	single, err := j.copies.single(ctx)
	return !single, err
}

// leaderLast returns the sequence of the leader's last message on the filter.
func (j *Journal) leaderLast(ctx context.Context, stream, filter string) (uint64, error) {
	m, err := j.leaderOf(ctx, stream, bus.Query{LastFor: filter})
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// reader fetches messages in batches by direct get, which any copy of the stream answers. If
// there is one copy, the end of a batch is the end of the log. If there are several, a copy
// that lags is asked again.
type reader struct {
	j      *Journal
	stream string
	filter string
	yield  func(bus.StoredMsg, error) bool
	after  uint64 // the last sequence that was yielded
	copies bool   // the stream has several copies
	upTo   uint64 // the leader's last sequence, if copies is set
	stalls int
	end    bool
}

func (r *reader) emit(m bus.StoredMsg) {
	r.after, r.stalls = m.Seq, 0
	r.end = !r.yield(m, nil)
}

func (r *reader) fail(err error) {
	r.end = true
	r.yield(bus.StoredMsg{}, err)
}

// batch fetches one batch.
func (r *reader) batch(ctx context.Context) {
	req, err := json.Marshal(bus.Query{Seq: r.after + 1, NextFor: r.filter, Batch: batchMsgs, MaxBytes: batchBytes})
	if err != nil {
		r.fail(fmt.Errorf("reading the log: %w", err))
		return
	}
	// The buffer holds a whole batch and its end, so that the inbox never blocks.
	l, subj := r.j.data, bus.DirectGetOf(r.stream)
	answers, lost := make(chan *nats.Msg, batchMsgs+1), l.Lost()
	reply, forget := l.Listen(subj, func(m *nats.Msg) {
		select {
		case answers <- m:
		default:
		}
	})
	defer forget()
	if err := l.Send(&nats.Msg{Subject: subj, Reply: reply, Data: req}); err != nil {
		r.fail(bus.TransportError("reading the log", err))
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
			r.fail(bus.TransportError("reading the log", nats.ErrDisconnected))
		case <-stall.C:
			// Request the rest again: until ctx ends, or twice if it has no deadline.
			if _, ends := ctx.Deadline(); !ends {
				r.stalls++
			}
			if r.stalls > 2 {
				r.fail(bus.TransportError("reading the log", nats.ErrTimeout))
			}
			return
		case <-ctx.Done():
			r.fail(bus.TransportError("reading the log", ctx.Err()))
		}
	}
}

// take handles one answer of the batch that began after a sequence, and reports
// whether the batch is over.
func (r *reader) take(ctx context.Context, m *nats.Msg, first uint64) (over bool) {
	stored, err := bus.ParseDirect(m)
	switch {
	case errors.Is(err, bus.ErrBatchEnd):
		r.batchEnd(ctx, m.Header.Get("Nats-Num-Pending") == "0", first)
		return true
	case errors.Is(err, bus.ErrNotFound):
		r.batchEnd(ctx, true, first)
		return true
	case errors.Is(err, bus.ErrUnreadable):
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
		r.fail(fmt.Errorf("reading the log: message %d follows %q, but the last one received was %s", stored.Seq, stored.Prev,
			want))
		return true
	}
	r.emit(stored.StoredMsg)
	return false
}

// batchEnd decides how to continue after a batch: the log has ended, or there is more, from a
// copy that has more or lags.
func (r *reader) batchEnd(ctx context.Context, last bool, first uint64) {
	switch {
	case !last:
	case !r.copies || r.after >= r.upTo:
		r.end = true
	case r.after == first:
		r.one(ctx) // this copy had nothing, but the leader may
	}
}

// one reads the next message through the leader.
func (r *reader) one(ctx context.Context) {
	m, err := r.j.leaderOf(ctx, r.stream, bus.Query{Seq: r.after + 1, NextFor: r.filter})
	switch {
	case errors.Is(err, bus.ErrNotFound):
		r.end = true
	case err != nil:
		r.fail(err)
	default:
		r.emit(m)
	}
}

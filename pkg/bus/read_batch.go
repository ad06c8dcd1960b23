package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The bounds of one batch.
const (
	batchMsgs  = 1000
	batchBytes = 8 << 20
)

// read yields the messages on a filter after a sequence.
func (b *Bus) read(ctx context.Context, filter string, after uint64) iter.Seq2[StoredMsg, error] {
	return func(yield func(StoredMsg, error) bool) {
		r := &reader{b: b, filter: filter, after: after, yield: yield}
		single, err := b.copies.single(ctx)
		if err == nil && !single {
			r.copies = true
			r.upTo, err = b.leaderLast(ctx, filter)
		}
		if err != nil {
			r.fail(err)
		}
		for !r.end {
			r.batch(ctx)
		}
	}
}

// leaderLast returns the sequence of the leader's last message on the filter.
func (b *Bus) leaderLast(ctx context.Context, filter string) (uint64, error) {
	m, err := b.getFromLeader(ctx, getRequest{LastFor: filter})
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// reader fetches messages in batches by direct get, which any copy of the stream answers. If
// there is one copy, the end of a batch is the end of the log. If there are several, a copy
// that lags is asked again.
type reader struct {
	b      *Bus
	filter string
	yield  func(StoredMsg, error) bool
	after  uint64 // the last sequence that was yielded
	copies bool   // the stream has several copies
	upTo   uint64 // the leader's last sequence, if copies is set
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
	req, err := json.Marshal(getRequest{Seq: r.after + 1, NextFor: r.filter, Batch: batchMsgs, MaxBytes: batchBytes})
	if err != nil {
		r.fail(fmt.Errorf("reading the log: %w", err))
		return
	}
	// The buffer holds a whole batch and its end, so that the inbox never blocks.
	l := r.b.data
	answers, lost := make(chan *nats.Msg, batchMsgs+1), l.lostChan()
	n, reply := l.inbox.ask(directGet, func(m *nats.Msg) {
		select {
		case answers <- m:
		default:
		}
	})
	defer l.inbox.forget(n)
	if err := l.send(&nats.Msg{Subject: directGet, Reply: reply, Data: req}); err != nil {
		r.fail(transportError("reading the log", err))
		return
	}
	stall := time.NewTimer(askAgain)
	defer stall.Stop()
	for first, over := r.after, false; !r.end && !over; {
		select {
		case m := <-answers:
			over = r.take(ctx, m, first)
			stall.Reset(askAgain)
		case <-lost:
			r.fail(transportError("reading the log", nats.ErrDisconnected))
		case <-stall.C:
			// Request the rest again: until ctx ends, or twice if it has no deadline.
			if _, ends := ctx.Deadline(); !ends {
				r.stalls++
			}
			if r.stalls > 2 {
				r.fail(transportError("reading the log", nats.ErrTimeout))
			}
			return
		case <-ctx.Done():
			r.fail(transportError("reading the log", ctx.Err()))
		}
	}
}

// take handles one answer of the batch that began after a sequence, and reports
// whether the batch is over.
func (r *reader) take(ctx context.Context, m *nats.Msg, first uint64) (over bool) {
	stored, err := parseDirect(m)
	switch {
	case errors.Is(err, errBatchEnd):
		r.batchEnd(ctx, m.Header.Get("Nats-Num-Pending") == "0", first)
		return true
	case errors.Is(err, ErrNotFound):
		r.batchEnd(ctx, true, first)
		return true
	case errors.Is(err, errUnreadable):
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
	if stored.prev != want {
		r.fail(fmt.Errorf("reading the log: message %d follows %q, but the last one received was %s", stored.Seq, stored.prev,
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
	m, err := r.b.getFromLeader(ctx, getRequest{Seq: r.after + 1, NextFor: r.filter})
	switch {
	case errors.Is(err, ErrNotFound):
		r.end = true
	case err != nil:
		r.fail(err)
	default:
		r.emit(m)
	}
}

var (
	errUnreadable = errors.New("message with unreadable headers")
	errBatchEnd   = errors.New("end of batch")
)

// directMsg is a message received by direct get.
type directMsg struct {
	StoredMsg
	prev string // sequence of the message before it in the batch; "0" for the first
}

// parseDirect parses a message received by direct get. The server appends its metadata to the
// publisher's headers, so only the last value of a header counts. A control message is one
// without a sequence: the publisher's headers may contain "Status: 404" or "Nats-Subject: …".
func parseDirect(m *nats.Msg) (directMsg, error) {
	seq := lastValue(m.Header, jetstream.SequenceHeader)
	if seq == "" {
		return directMsg{}, parseStatus(m)
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return directMsg{}, errUnreadable
	}
	at, err := time.Parse(time.RFC3339Nano, lastValue(m.Header, jetstream.TimeStampHeaer))
	if err != nil {
		return directMsg{}, errUnreadable
	}
	d := directMsg{
		StoredMsg: StoredMsg{Seq: n, Time: at, Subject: lastValue(m.Header, jetstream.SubjectHeader), Data: m.Data},
		prev:      lastValue(m.Header, "Nats-Last-Sequence"),
	}
	for _, k := range serverHeaders {
		delete(m.Header, k)
	}
	if len(m.Header) > 0 {
		d.Header = m.Header
	}
	return d, nil
}

func parseStatus(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "204":
		return errBatchEnd
	case statusDenied:
		return fmt.Errorf("reading the log: %w", deniedError(m))
	case "404":
		return fmt.Errorf("reading the log: %w", ErrNotFound)
	case "503":
		return transportError("reading the log", nats.ErrNoResponders)
	case "":
		return errUnreadable
	default:
		return fmt.Errorf("reading the log: the server reported %s %s", status, m.Header.Get("Description"))
	}
}

// serverHeaders are what direct get appends.
var serverHeaders = [...]string{
	jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
	"Nats-Num-Pending", "Nats-Last-Sequence",
}

func lastValue(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

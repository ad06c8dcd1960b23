package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// AppendCommit stores a commit if and only if the session's last commit is the
// one at sequence prev (0: there is none), and returns its sequence.
//
// The error is one of [ErrFenceLost] and [ErrRefused] (definitely not stored),
// [ErrTooLarge] (not even sent) and [ErrAmbiguous] (anything else: read the last
// commit to find out). There is no retry and no message id: both would hide who
// won. When ctx has no deadline, the wait ends after five seconds.
func (b *Bus) AppendCommit(ctx context.Context, ref subject.Ref, body []byte, prev uint64) (uint64, error) {
	return b.appendCommit(ctx, ref, body, prev).Wait(ctx)
}

// AppendCommitAsync sends a commit like [Bus.AppendCommit] and does not wait, so
// that the caller can do something else until the fence's verdict is in.
func (b *Bus) AppendCommitAsync(ref subject.Ref, body []byte, prev uint64) *Pending {
	return b.appendCommit(context.Background(), ref, body, prev)
}

// AppendCommitAsyncContext is [Bus.AppendCommitAsync] with the trace of ctx.
func (b *Bus) AppendCommitAsyncContext(ctx context.Context, ref subject.Ref, body []byte, prev uint64) *Pending {
	return b.appendCommit(ctx, ref, body, prev)
}

func (b *Bus) appendCommit(ctx context.Context, ref subject.Ref, body []byte, prev uint64) *Pending {
	m := &nats.Msg{
		Subject: ref.Commit(), Data: body,
		Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: []string{strconv.FormatUint(prev, 10)},
			jetstream.ExpectedStreamHeader:      []string{StreamSessions},
		},
	}
	return b.store(ctx, m)
}

// Pending is a message on its way to a stream.
type Pending struct {
	b     *Bus
	subj  string
	n     uint64
	since time.Time
	lost  <-chan struct{}
	ack   chan *nats.Msg
	dup   bool
	err   error
	seq   uint64
	done  bool
}

// store sends m to the stream that takes its subject.
func (b *Bus) store(ctx context.Context, m *nats.Msg) *Pending {
	p := &Pending{b: b, subj: m.Subject, since: time.Now(), lost: b.lostChan(), ack: make(chan *nats.Msg, 1)}
	p.n, m.Reply = b.inbox.ask(func(m *nats.Msg) {
		select {
		case p.ack <- m:
		default: // only the first answer counts
		}
	})
	if err := b.publish(ctx, m); err != nil {
		b.inbox.forget(p.n)
		p.done = true
		if p.err = fmt.Errorf("storing on %s: %w", p.subj, err); !errors.Is(err, ErrTooLarge) {
			p.err = fmt.Errorf("storing on %s: %w: %w", p.subj, ErrAmbiguous, err)
		}
	}
	return p
}

// Wait returns the sequence of the stored message, or why there is none: see
// [Bus.AppendCommit]. It may be called again, but not at the same time.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	if p.done {
		return p.seq, p.err
	}
	var timeout <-chan time.Time
	if _, has := ctx.Deadline(); !has {
		t := time.NewTimer(ackWait - time.Since(p.since))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case m := <-p.ack:
		p.resolve(m)
		return p.seq, p.err
	default:
	}
	select {
	case m := <-p.ack:
		p.resolve(m)
	case <-p.lost:
		p.fail(nats.ErrDisconnected)
	case <-timeout:
		p.fail(nats.ErrTimeout)
	case <-ctx.Done():
		p.fail(ctx.Err())
	}
	return p.seq, p.err
}

func (p *Pending) fail(why error) {
	p.b.inbox.forget(p.n)
	p.done = true
	p.err = fmt.Errorf("storing on %s: %w: %w", p.subj, ErrAmbiguous, why)
}

func (p *Pending) resolve(m *nats.Msg) {
	p.b.inbox.forget(p.n)
	p.done = true
	p.seq, p.dup, p.err = parseAck(m)
	if p.err != nil {
		p.err = fmt.Errorf("storing on %s: %w", p.subj, p.err)
	}
}

// parseAck reads the server's answer to a message for a stream.
func parseAck(m *nats.Msg) (seq uint64, dup bool, err error) {
	if noResponders(m) {
		return 0, false, fmt.Errorf("%w: %w", ErrAmbiguous, nats.ErrNoResponders)
	}
	var ack struct {
		Stream    string              `json:"stream"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrAmbiguous, jetstream.ErrInvalidJSAck)
	}
	if ack.Error != nil {
		return 0, false, storeError(ack.Error)
	}
	if ack.Stream == "" || ack.Sequence == 0 {
		return 0, false, fmt.Errorf("%w: %w", ErrAmbiguous, jetstream.ErrInvalidJSAck)
	}
	return ack.Sequence, ack.Duplicate, nil
}

const errCodeStoreFailed = 10077 // JSStreamStoreFailedF of the server

// storeError says whether the server's error means that nothing was stored.
func storeError(e *jetstream.APIError) error {
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return fmt.Errorf("%w: %s", ErrFenceLost, e.Description)
	case errCodeStoreFailed:
		// A limit is checked before anything is written. Any other failure may
		// leave the message in the file, to be found after a restart.
		if !strings.Contains(e.Description, "maximum") && !strings.Contains(e.Description, "too large") {
			return fmt.Errorf("%w: %w", ErrAmbiguous, e)
		}
	}
	return fmt.Errorf("%w: %s", ErrRefused, e.Description)
}

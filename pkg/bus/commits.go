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

// AppendCommit stores a commit if and only if the session's last commit is at sequence prev
// (0: the session has none), and returns its sequence.
//
// The error is one of [ErrFenceLost] and [ErrRefused] (definitely not stored; the latter is
// also [ErrDenied] if the credentials do not allow it), [ErrTooLarge] (not even sent) and
// [ErrAmbiguous] (anything else: read the last commit to find out). AppendCommit does not
// retry and sends no message id, because both would hide which writer was first. It waits
// until ctx ends, at most five seconds.
func (b *Bus) AppendCommit(ctx context.Context, ref subject.Ref, body []byte, prev uint64) (uint64, error) {
	return b.appendCommit(ctx, ref, body, prev).Wait(ctx)
}

// AppendCommitAsync sends a commit like [Bus.AppendCommit], but does not wait for the
// outcome; see [Pending.Wait].
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
	return b.store(ctx, b.data, m)
}

// Pending is a message that was sent to a stream and whose outcome is not yet known.
type Pending struct {
	l     *link
	ctx   context.Context //nolint:containedctx // for its trace, should the message be sent again
	msg   *nats.Msg
	since time.Time
	n     uint64
	lost  <-chan struct{}
	ack   chan *nats.Msg

	done bool
	seq  uint64
	dup  bool
	err  error
}

// store sends m over a link to the stream of its subject.
func (b *Bus) store(ctx context.Context, l *link, m *nats.Msg) *Pending {
	p := &Pending{l: l, ctx: ctx, msg: m, since: time.Now(), ack: make(chan *nats.Msg, 1)}
	p.n, m.Reply = l.inbox.ask(m.Subject, func(m *nats.Msg) {
		select {
		case p.ack <- m:
		default: // only the first answer counts
		}
	})
	p.send()
	return p
}

func (p *Pending) send() {
	p.lost = p.l.lostChan()
	err := p.l.b.publish(p.ctx, p.l, p.msg)
	switch {
	case err == nil:
	case errors.Is(err, ErrTooLarge):
		p.finish(err)
	default:
		p.finish(fmt.Errorf("%w: %w", ErrAmbiguous, err))
	}
}

// Wait returns the sequence of the stored message, or an error as [Bus.AppendCommit] does. It
// may be called again, but not concurrently.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	if p.done {
		return p.seq, p.err
	}
	limit := time.NewTimer(ackWait - time.Since(p.since))
	defer limit.Stop()
	timeout := limit.C
	for pause := time.Millisecond; !p.done; pause = min(2*pause, 50*time.Millisecond) {
		err := p.await(ctx, timeout)
		if !errors.Is(err, errInFlight) {
			p.finish(err)
			break
		}
		// Nothing was stored, so sending again hides nothing: the fence decides anew.
		t := time.NewTimer(pause)
		select {
		case <-t.C:
			p.send()
		case <-timeout:
			p.finish(err)
		case <-ctx.Done():
			p.finish(err)
		}
		t.Stop()
	}
	return p.seq, p.err
}

func (p *Pending) await(ctx context.Context, timeout <-chan time.Time) error {
	select {
	case m := <-p.ack: // before anything else
		return p.resolve(m)
	default:
	}
	select {
	case m := <-p.ack:
		return p.resolve(m)
	case <-p.lost:
		return fmt.Errorf("%w: %w", ErrAmbiguous, nats.ErrDisconnected)
	case <-timeout:
		return fmt.Errorf("%w: %w", ErrAmbiguous, nats.ErrTimeout)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err())
	}
}

func (p *Pending) resolve(m *nats.Msg) (err error) {
	p.seq, p.dup, err = parseAck(m)
	return err
}

func (p *Pending) finish(err error) {
	p.l.inbox.forget(p.n)
	p.done = true
	if errors.Is(err, nats.ErrNoResponders) {
		p.l.b.known.missed()
	}
	if err != nil {
		p.err = fmt.Errorf("storing on %s: %w", p.msg.Subject, err)
	}
	p.l.b.observe(p)
}

// parseAck parses the server's answer to a message for a stream.
func parseAck(m *nats.Msg) (seq uint64, dup bool, err error) {
	if noResponders(m) {
		return 0, false, fmt.Errorf("%w: %w", ErrAmbiguous, nats.ErrNoResponders)
	}
	if err := deniedError(m); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrRefused, err)
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

// Errors of the server that the client library does not name.
const (
	errCodeStoreFailed        = 10077 // JSStreamStoreFailedF
	errCodeDuplicateInProcess = 10158 // JSStreamDuplicateMessageConflict
)

// errInFlight means not stored, because another message on the subject is being replicated.
// The server returns this even for a short while after it has acknowledged that other
// message, also to the client that sent it.
var errInFlight = fmt.Errorf("%w: another commit is in flight", ErrFenceLost)

// storeError converts an error of the server; the result tells whether anything was stored.
func storeError(e *jetstream.APIError) error {
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return errInFlight
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return fenceError(e.Description)
	case errCodeDuplicateInProcess:
		// An earlier attempt is being replicated: the next answer of the server has its
		// outcome.
		return fmt.Errorf("%w: %w", ErrAmbiguous, e)
	case errCodeStoreFailed:
		// A limit is checked before anything is written. Any other failure may
		// leave the message in the file, to be found after a restart.
		if !strings.Contains(e.Description, "maximum") && !strings.Contains(e.Description, "large") {
			return fmt.Errorf("%w: %w", ErrAmbiguous, e)
		}
	}
	if f := limitFault(e); f != nil {
		return fmt.Errorf("%w: %w", ErrRefused, f)
	}
	return fmt.Errorf("%w: %s", ErrRefused, e.Description)
}

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
)

// Pending is a message that was sent to a stream and whose outcome is not yet known.
type Pending struct {
	l     *Link
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

// Store sends a message to the stream of its subject; [Pending.Wait] returns the outcome.
// The errors are [ErrFenceLost] and [ErrRefused] (definitely not stored; the latter is also
// [ErrDenied] if the credentials do not allow it), [ErrTooLarge] (not even sent) and
// [ErrAmbiguous] (anything else). It does not retry: the outcome is unknown after at most
// five seconds.
func (l *Link) Store(ctx context.Context, m *nats.Msg) *Pending {
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
	p.lost = p.l.Lost()
	err := p.l.b.publish(p.ctx, p.l, p.msg)
	switch {
	case err == nil:
	case errors.Is(err, ErrTooLarge):
		p.finish(err)
	default:
		p.finish(fmt.Errorf("%w: %w", ErrAmbiguous, err))
	}
}

// Wait returns the sequence of the stored message, or an error of [Link.Store]. It
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
		p.l.b.missing.Note()
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

// FenceError is an [ErrFenceLost] with the sequence that the server uses as the session's
// last commit. In a damaged log, the server may not count a commit that exists, or may count
// one that it cannot read.
type FenceError struct {
	Last        uint64
	Description string // the server's error text
}

// Error implements error.
func (e *FenceError) Error() string { return ErrFenceLost.Error() + ": " + e.Description }

// Unwrap returns ErrFenceLost.
func (e *FenceError) Unwrap() error { return ErrFenceLost }

// fenceError parses "wrong last sequence: 42".
func fenceError(description string) error {
	_, n, found := strings.Cut(description, ": ")
	last, err := strconv.ParseUint(n, 10, 64)
	if !found || err != nil {
		return fmt.Errorf("%w: %s", ErrFenceLost, description)
	}
	return &FenceError{Last: last, Description: description}
}

package bus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// StreamSessions is the stream of the log: causes and commits.
const StreamSessions = "SESSIONS"

// DuplicateWindow is how long the log remembers message ids. A publisher that is
// not answered repeats itself within it.
const DuplicateWindow = 2 * time.Minute

const (
	attemptWait   = 2 * time.Second        // one attempt's wait for its acknowledgement
	attemptLook   = 250 * time.Millisecond // between two looks, meanwhile, whether the bus can store
	attemptPause  = 50 * time.Millisecond  // before the second attempt
	attemptPauses = 500 * time.Millisecond // the longest pause
)

// PublishCause stores a cause of the session and returns its sequence once the log has
// acknowledged it.
//
// The id is the sender's id of the cause: storing the same id and body again within
// [DuplicateWindow] returns the sequence of the first. If an acknowledgement is lost,
// PublishCause sends the message again with the same id until ctx ends, so that the cause is
// stored exactly once. A client that guesses the id and stores something else with it cannot
// suppress the cause: a duplicate counts only if the stored message has this subject and this
// body. An empty id means a random one.
//
// Only inputs are refused while the log cannot store ([StorageFault]) or more of them wait
// than cores allow ([ErrOverloaded]).
//
// [ErrTooLarge], [ErrRefused], [ErrOverloaded] and [ErrDenied] mean that the cause is not
// stored. [ErrAmbiguous] means that ctx (or the duplicate window) ended before that was
// known, and [ErrInvalidArgument] that a name is not a valid id.
func (b *Bus) PublishCause(
	ctx context.Context, ref subject.Ref, kind subject.CauseKind, w subject.Writer, id string, body []byte,
) (uint64, error) {
	subj := ref.Cause(kind, w)
	if _, err := subject.ParseCause(subj); err != nil {
		return 0, Errorf(CodeInvalidArgument, "publishing a cause: %v", err)
	}
	if id == "" {
		id = nuid.Next()
	}
	if kind == subject.Input {
		if err := b.admit(subj); err != nil {
			return 0, err
		}
	}
	// One trace for all attempts.
	ctx = telemetry.EnsureTrace(ctx)
	for {
		seq, dup, err := b.storeWithID(ctx, subj, subj+"/"+id, body)
		if err != nil {
			return 0, err
		}
		if !dup {
			return seq, nil
		}
		same, err := b.isStored(ctx, seq, subj, body)
		if err != nil {
			return 0, fmt.Errorf("storing on %s: verifying the duplicate at %d: %w: %w", subj, seq, ErrAmbiguous, err)
		}
		if same {
			return seq, nil
		}
		b.log.Warn("message id is used by another message; storing with a new one", "subject", subj, "id", id,
			"sequence", seq)
		id = nuid.Next()
	}
}

// isStored reports whether the message at a sequence has the subject and body. It retries
// until ctx ends.
func (b *Bus) isStored(ctx context.Context, seq uint64, subj string, body []byte) (bool, error) {
	for {
		m, err := b.storedAt(ctx, seq)
		if errors.Is(err, ErrNotFound) {
			var gone bool
			if gone, err = b.IsGone(ctx, seq); err == nil && gone {
				return false, nil
			}
		} else if err == nil {
			return m.Subject == subj && bytes.Equal(m.Data, body), nil
		}
		t := time.NewTimer(attemptPause)
		select {
		case <-ctx.Done():
			t.Stop()
			return false, cmp.Or(err, ctx.Err())
		case <-t.C:
		}
	}
}

// storeWithID stores a message, and stores it again as long as the outcome is unknown.
func (b *Bus) storeWithID(ctx context.Context, subj, id string, body []byte) (seq uint64, dup bool, err error) {
	start, pause, maybe := time.Now(), attemptPause, false
	for {
		attempt, cancel := b.attempt(ctx)
		p := b.data.Store(attempt, &nats.Msg{Subject: subj, Data: body, Header: nats.Header{
			jetstream.MsgIDHeader:          []string{id},
			jetstream.ExpectedStreamHeader: []string{StreamSessions},
		}})
		seq, err = p.Wait(attempt)
		cancel()
		if err == nil {
			return seq, p.dup, nil
		}
		if !errors.Is(err, ErrAmbiguous) {
			if maybe {
				// This attempt was refused, an earlier one may have been stored.
				err = fmt.Errorf("%w: %v", ErrAmbiguous, err) //nolint:errorlint // not certainly refused
			}
			return 0, false, err
		}
		maybe = true
		if f := b.StorageFault(); f != nil {
			return 0, false, fmt.Errorf("%w: %w", err, f)
		}
		if time.Since(start) > DuplicateWindow-10*time.Second {
			return 0, false, fmt.Errorf("gave up at the end of the duplicate window: %w", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return 0, false, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-t.C:
		}
		pause = min(2*pause, attemptPauses)
	}
}

// attempt bounds one attempt to store, which also ends when it becomes known that the bus cannot store.
func (b *Bus) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, attemptWait)
	late := time.AfterFunc(attemptLook, func() {
		look := time.NewTicker(attemptLook)
		defer look.Stop()
		for ctx.Err() == nil && b.StorageFault() == nil {
			select {
			case <-ctx.Done():
			case <-look.C:
			}
		}
		cancel()
	})
	return ctx, func() { late.Stop(); cancel() }
}

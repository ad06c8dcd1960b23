package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// AppendCommit stores a commit if and only if the session's last commit is at sequence prev
// (0: the session has none), and returns its sequence. Noise after that commit does not matter (see [IsNoise]).
//
// The error is one of [bus.ErrFenceLost] and [bus.ErrRefused] (definitely not stored; the latter is
// also [bus.ErrDenied] if the credentials do not allow it), [bus.ErrTooLarge] (not even sent) and
// [bus.ErrAmbiguous] (anything else: read the last commit to find out). AppendCommit sends no message id, because
// it would hide which writer was first. It waits until ctx ends, at most five seconds.
func (j *Journal) AppendCommit(ctx context.Context, ref subject.Ref, body []byte, prev uint64) (uint64, error) {
	return j.AppendCommitAsync(ctx, ref, body, prev, false).Wait(ctx)
}

// AppendCommitAsync sends a commit like [Journal.AppendCommit], with the trace of ctx, but does
// not wait for the outcome. An outgoing commit is marked, so that [Journal.ConsumeOutgoing] finds it without
// reading the others.
func (j *Journal) AppendCommitAsync(
	ctx context.Context, ref subject.Ref, body []byte, prev uint64, outgoing bool,
) *Appending {
	a := &Appending{j: j, ctx: ctx, ref: ref, body: body, fence: prev, outgoing: outgoing}
	a.send()
	return a
}

// Appending is a commit that was sent and whose outcome is not known yet.
type Appending struct {
	j        *Journal
	ctx      context.Context //nolint:containedctx // for its trace, should the commit be sent again
	ref      subject.Ref
	body     []byte
	fence    uint64 // sequence of the last message on the subject, as far as known
	outgoing bool
	sent     *bus.Pending

	done bool
	seq  uint64
	err  error
}

func (a *Appending) send() {
	m := &nats.Msg{
		Subject: a.ref.Commit(), Data: a.body,
		Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: []string{strconv.FormatUint(a.fence, 10)},
			jetstream.ExpectedStreamHeader:      []string{bus.StreamSessions},
		},
	}
	if a.outgoing {
		m.Header[headerOutgoing] = []string{"1"}
	}
	a.sent = a.j.data.Store(a.ctx, m)
}

// maxNoise is how often a commit is sent again because noise was stored in the meantime.
const maxNoise = 16

// Wait returns the sequence of the commit, or an error of [Journal.AppendCommit]. It may be called again, but not
// concurrently.
//
// The server counts noise as the last message of the session. If it has refused the commit because of noise alone,
// nothing was stored, and no other core has committed: the commit is sent again, after the noise.
func (a *Appending) Wait(ctx context.Context) (uint64, error) {
	if !a.done {
		a.done = true
		a.seq, a.err = a.wait(ctx)
	}
	return a.seq, a.err
}

func (a *Appending) wait(ctx context.Context) (uint64, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	for again := 0; ; again++ {
		seq, err := a.sent.Wait(ctx)
		fence, lost := errors.AsType[*bus.FenceError](err)
		if !lost || fence.Last <= a.fence || again == maxNoise {
			return seq, err
		}
		noise, unread := a.j.onlyNoise(ctx, a.ref, a.fence, fence.Last)
		if unread != nil {
			return 0, fmt.Errorf("storing on %s: %w: what was stored before cannot be read: %w", a.ref.Commit(),
				bus.ErrAmbiguous, unread)
		}
		if !noise {
			return seq, err
		}
		a.fence = fence.Last
		a.send()
	}
}

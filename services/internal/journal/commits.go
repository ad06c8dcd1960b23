package journal

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// AppendCommit stores a commit if and only if the session's last commit is at sequence prev
// (0: the session has none), and returns its sequence.
//
// The error is one of [bus.ErrFenceLost] and [bus.ErrRefused] (definitely not stored; the latter is
// also [bus.ErrDenied] if the credentials do not allow it), [bus.ErrTooLarge] (not even sent) and
// [bus.ErrAmbiguous] (anything else: read the last commit to find out). AppendCommit does not
// retry and sends no message id, because both would hide which writer was first. It waits
// until ctx ends, at most five seconds.
func (j *Journal) AppendCommit(ctx context.Context, ref subject.Ref, body []byte, prev uint64) (uint64, error) {
	return j.AppendCommitAsync(ctx, ref, body, prev, false).Wait(ctx)
}

// AppendCommitAsync sends a commit like [Journal.AppendCommit], with the trace of ctx, but does
// not wait for the outcome; see [bus.Pending.Wait]. An outgoing commit is marked, so that
// [Journal.ConsumeOutgoing] finds it without reading the others.
func (j *Journal) AppendCommitAsync(
	ctx context.Context, ref subject.Ref, body []byte, prev uint64, outgoing bool,
) *bus.Pending {
	m := &nats.Msg{
		Subject: ref.Commit(), Data: body,
		Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: []string{strconv.FormatUint(prev, 10)},
			jetstream.ExpectedStreamHeader:      []string{bus.StreamSessions},
		},
	}
	if outgoing {
		m.Header[headerOutgoing] = []string{"1"}
	}
	return j.data.Store(ctx, m)
}

package journal

import (
	"context"
	"iter"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// AppendAudit stores a block of the audit log if and only if the last one is at sequence prev (0: there is
// none), and returns its sequence. The errors are those of [Journal.AppendCommit].
func (j *Journal) AppendAudit(ctx context.Context, body []byte, prev uint64) (uint64, error) {
	return j.data.Store(ctx, &nats.Msg{Subject: subject.Audit, Data: body, Header: nats.Header{
		jetstream.ExpectedLastSeqHeader: []string{strconv.FormatUint(prev, 10)},
		jetstream.ExpectedStreamHeader:  []string{StreamAudit},
	}}).Wait(ctx)
}

// AuditBlocks yields the blocks of the audit log after a sequence, in order, like [Journal.Commits].
func (j *Journal) AuditBlocks(ctx context.Context, after uint64) iter.Seq2[bus.StoredMsg, error] {
	// How many copies the stream has is not known.
	return j.data.Messages(ctx, bus.Range{Stream: StreamAudit, Filter: subject.Audit, After: after, Copies: true})
}

// AuditBlock returns the first block of the audit log that is at a sequence or after it, or [bus.ErrNotFound].
func (j *Journal) AuditBlock(ctx context.Context, seq uint64) (bus.StoredMsg, error) {
	return j.leaderOf(ctx, StreamAudit, bus.Query{Seq: max(seq, 1), NextFor: subject.Audit})
}

// LastAudit returns the last block of the audit log, or [bus.ErrNotFound].
func (j *Journal) LastAudit(ctx context.Context) (bus.StoredMsg, error) {
	return j.leaderOf(ctx, StreamAudit, bus.Query{LastFor: subject.Audit})
}

// AuditInfo describes the stream of the audit log.
func (j *Journal) AuditInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	s, err := j.JetStream().Stream(ctx, StreamAudit)
	if err != nil {
		return nil, bus.TransportError("looking up the audit log", err)
	}
	return s.CachedInfo(), nil
}

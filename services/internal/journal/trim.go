package journal

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// Trim deletes from the log the session's causes up to a sequence, and its commits before another one. The caller has
// read, from the log, a commit at or after that sequence with which folding may begin, and which has processed these
// causes (rule 17). Repeating it changes nothing.
func (j *Journal) Trim(ctx context.Context, ref subject.Ref, causes, commits uint64) error {
	if commits == 0 { // the server would delete all of them, and accept a first commit again
		return bus.Errorf(bus.CodeInvalidArgument, "trimming %s: no commit to end at", ref)
	}
	s, err := j.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		return bus.TransportError("trimming "+ref.String(), err)
	}
	for _, p := range []struct {
		subject string
		before  uint64
	}{
		{ref.Causes(), causes + 1},
		{ref.Commit(), commits},
	} {
		err := s.Purge(ctx, jetstream.WithPurgeSubject(p.subject), jetstream.WithPurgeSequence(p.before))
		if err != nil {
			return bus.TransportError("trimming "+ref.String(), err)
		}
	}
	return nil
}

package journal

import (
	"context"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// The headers of live events: their position in the log (rule 16), so that clients that
// follow a session detect a gap and fill it from the log.
const (
	HeaderCommit = "Skandha-Commit" // stream sequence of the commit
	HeaderIndex  = "Skandha-Index"  // index of the event in it, from 0
	HeaderEvents = "Skandha-Events" // how many events the commit has
	HeaderPrev   = "Skandha-Prev"   // stream sequence of the session's previous commit
)

// PublishLive publishes the live copy of an event of the session, or a token delta. It is
// neither stored nor acknowledged. The subject must be one of [subject.Ref.Live],
// [subject.Ref.Answer] or [subject.Ref.Stream] of ref.
func (j *Journal) PublishLive(ctx context.Context, ref subject.Ref, subj string, hdr nats.Header, body []byte) error {
	if subj != ref.Stream() && !ref.IsAnswer(subj) {
		if owner, _, _, err := subject.ParseLive(subj); err != nil || owner != ref {
			return bus.Errorf(bus.CodeInvalidArgument, "subject %q is not a live subject of %s", subj, ref)
		}
	}
	return j.Publish(ctx, subj, hdr, body)
}

// PublishDead stores a copy of a cause that could not be handled, for operators.
func (j *Journal) PublishDead(ctx context.Context, ref subject.Ref, hdr nats.Header, body []byte) error {
	_, err := j.data.Store(ctx, &nats.Msg{Subject: ref.Dead(), Header: hdr, Data: body}).Wait(ctx)
	return err
}

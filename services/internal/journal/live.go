package journal

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
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

// output is the payload of an event with a piece of what a tool prints.
type output tool.Output

// EventType implements [event.Payload].
func (output) EventType() event.Type { return event.TypeOutput }

// PublishOutput publishes a piece of what a call of the turn prints, like a token delta.
func (j *Journal) PublishOutput(ctx context.Context, ref subject.Ref, turn, source string, o tool.Output) error {
	e := event.New(ref, o.Call+"/"+o.Attempt+"/"+strconv.Itoa(o.N), source, output(o))
	e.Turn = turn
	return j.PublishLive(ctx, ref, ref.Stream(), nil, e.AppendJSON(nil))
}

// linesPerSecond is how many lines about one call are published within a second; more are dropped.
const linesPerSecond = 20

// Lines returns a function that publishes lines about a call that runs, for people, like what it prints.
// of has the ids of the call and of its attempt.
func (j *Journal) Lines(ref subject.Ref, turn, source string, of tool.Output) func(string) {
	var mu sync.Mutex
	var second int64
	lines := 0
	of.Stream = "stdout"
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now().Unix(); now != second {
			second, lines = now, 0
		}
		if lines++; lines > linesPerSecond {
			return
		}
		of.Text = line + "\n"
		if err := j.PublishOutput(context.Background(), ref, turn, source, of); err != nil {
			j.log.Debug("a line about a call is lost", "session", ref, "call", of.Call, "error", err)
		}
		of.N++
	}
}

// PublishDead stores a copy of a cause that could not be handled, for operators.
func (j *Journal) PublishDead(ctx context.Context, ref subject.Ref, hdr nats.Header, body []byte) error {
	_, err := j.data.Store(ctx, &nats.Msg{Subject: ref.Dead(), Header: hdr, Data: body}).Wait(ctx)
	return err
}

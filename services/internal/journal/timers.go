package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// ScheduleTimer stores a timer of the session and returns once the server has acknowledged
// it. The timer fires at the given time, or immediately if that has passed, also after a
// restart of the server. A timer with the same id that has not fired yet is replaced. After
// an error the timer may not be stored: schedule it again.
func (j *Journal) ScheduleTimer(ctx context.Context, ref subject.Ref, id string, at time.Time) error {
	if id == "" {
		return bus.Errorf(bus.CodeInvalidArgument, "scheduling a timer of %s: the id is empty", ref)
	}
	_, err := j.data.Store(ctx, &nats.Msg{Subject: ref.TimerSchedule(id), Header: nats.Header{
		jetstream.ScheduleHeader:       []string{"@at " + at.UTC().Format(time.RFC3339Nano)},
		jetstream.ScheduleTargetHeader: []string{ref.TimerFired(id)},
		jetstream.ExpectedStreamHeader: []string{StreamTimers},
	}}).Wait(ctx)
	if err != nil {
		return fmt.Errorf("scheduling timer %s of %s: %w", id, ref, err)
	}
	return nil
}

// CancelTimer removes a timer that has not fired yet. It may still fire if it was just about
// to, which the handler of the firing must tolerate.
func (j *Journal) CancelTimer(ctx context.Context, ref subject.Ref, id string) error {
	s, err := j.JetStream().Stream(ctx, StreamTimers)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(ref.TimerSchedule(id)))
	}
	if err != nil {
		return bus.TransportError(fmt.Sprintf("cancelling timer %s of %s", id, ref), err)
	}
	return nil
}

const firedDurable = "fired"

// ConsumeFired delivers every firing at least once, to one of the processes that call it,
// until a handler returns nil for it. The handler stores the timer's cause and returns when
// that is acknowledged. It is called for one firing after the other, with a context that
// ends with ctx. room is as in [ConsumeConfig]: what is not delivered waits in the stream. Few
// are requested at once, as each one opens a session.
func (j *Journal) ConsumeFired(
	ctx context.Context, room func() bool, handler func(ctx context.Context, ref subject.Ref, id string) error,
) (*Consumption, error) {
	l := &pullLoop{
		worker: j.newWorker(firedDurable), stream: StreamTimers, room: room, batch: smallBatch,
		config: jetstream.ConsumerConfig{
			Durable: firedDurable, FilterSubject: subject.AllFired,
			// Handled firings are deleted from the stream, so all messages are unhandled.
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: -1, MemoryStorage: true,
		},
	}
	l.handle = func(m *nats.Msg, _ *nats.MsgMetadata) { j.handleFired(ctx, m, handler) }
	if err := j.startPull(ctx, l); err != nil {
		return nil, err
	}
	return &Consumption{l}, nil
}

func (j *Journal) handleFired(
	ctx context.Context, m *nats.Msg, handler func(context.Context, subject.Ref, string) error,
) {
	ref, id, err := subject.ParseFired(m.Subject)
	if err != nil {
		j.log.Warn("dropping a firing with an invalid subject", "subject", m.Subject, "error", err)
		_ = m.Respond([]byte("+TERM"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if err := handler(ctx, ref, id); err != nil {
		j.log.Warn("handling a timer failed; it will be redelivered", "ref", ref.String(), "timer", id, "error", err)
		_ = m.Respond([]byte(`-NAK {"delay": 500000000}`))
		return
	}
	// A lost acknowledgement only costs another delivery.
	_ = m.Respond([]byte("+ACK"))
}

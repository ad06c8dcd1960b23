package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// ScheduleTimer lays down a timer of the session and returns once the server has
// stored it. It fires at the time, or at once when that is past; after a restart
// of the server too. The same id again replaces what has not fired yet. An error
// says that it may not be stored: schedule it again.
func (b *Bus) ScheduleTimer(ctx context.Context, ref subject.Ref, id string, at time.Time) error {
	if id == "" {
		return Errorf(CodeInvalidArgument, "scheduling a timer of %s: the id is empty", ref)
	}
	_, err := b.store(ctx, b.data, &nats.Msg{Subject: ref.TimerSchedule(id), Header: nats.Header{
		jetstream.ScheduleHeader:       []string{"@at " + at.UTC().Format(time.RFC3339Nano)},
		jetstream.ScheduleTargetHeader: []string{ref.TimerFired(id)},
		jetstream.ExpectedStreamHeader: []string{StreamTimers},
	}}).Wait(ctx)
	if err != nil {
		return fmt.Errorf("scheduling timer %s of %s: %w", id, ref, err)
	}
	return nil
}

// CancelTimer removes a timer that has not fired yet. It may still fire when it
// is just about to; whoever takes the firing must not mind.
func (b *Bus) CancelTimer(ctx context.Context, ref subject.Ref, id string) error {
	s, err := b.js.Stream(ctx, StreamTimers)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(ref.TimerSchedule(id)))
	}
	if err != nil {
		return transportError(fmt.Sprintf("cancelling timer %s of %s", id, ref), err)
	}
	return nil
}

const firedDurable = "fired"

// ConsumeFired hands every firing to one of the processes that call it, until a
// handler returns nil for it: at least once. The handler stores the timer's cause
// and returns when that is acknowledged. It is called for one firing after the
// other, with a context that ends with ctx.
func (b *Bus) ConsumeFired(ctx context.Context, handler func(ctx context.Context, ref subject.Ref, id string) error) (*Consumption, error) {
	l := &pullLoop{
		b: b, stream: StreamTimers,
		config: jetstream.ConsumerConfig{
			Durable: firedDurable, FilterSubject: subject.AllFired,
			// What was handled is gone from the stream, so all of it is what is left.
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: -1, MemoryStorage: true,
		},
	}
	l.handle = func(m *nats.Msg, _ *nats.MsgMetadata) { b.handleFired(ctx, m, handler) }
	if err := b.startPull(ctx, l); err != nil {
		return nil, err
	}
	return &Consumption{l}, nil
}

func (b *Bus) handleFired(ctx context.Context, m *nats.Msg, handler func(context.Context, subject.Ref, string) error) {
	ref, id, err := subject.ParseFired(m.Subject)
	if err != nil {
		b.log.Warn("dropping a firing that names no timer", "subject", m.Subject, "error", err)
		_ = m.Respond([]byte("+TERM"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if err := handler(ctx, ref, id); err != nil {
		b.log.Warn("timer fired and was not taken; it comes again", "ref", ref.String(), "timer", id, "error", err)
		_ = m.Respond([]byte(`-NAK {"delay": 500000000}`))
		return
	}
	// A lost acknowledgement only costs another delivery.
	_ = m.Respond([]byte("+ACK"))
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// headerOutgoing marks commits that have something to deliver.
const headerOutgoing = "Skandha-Outgoing"

// outgoingDurable is the consumer of outgoing commits. The server keeps its position on disk.
const outgoingDurable = "outbox"

// outgoingConfig reads only the headers of commits: most have nothing to deliver.
func outgoingConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: outgoingDurable, FilterSubject: subject.AllCommits, HeadersOnly: true,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Second, MaxDeliver: -1, MaxAckPending: -1,
	}
}

// EnsureOutgoing makes the consumer of outgoing commits, which begins after the log's last message,
// unless it exists. A commit that is appended afterwards is not missed.
func (j *Journal) EnsureOutgoing(ctx context.Context) error {
	l := &pullLoop{worker: j.newWorker(outgoingDurable), stream: bus.StreamSessions, config: outgoingConfig()}
	last, err := j.LastSequence(ctx)
	if err != nil {
		return err
	}
	l.floor = func() uint64 { return last }
	return l.ensure(ctx)
}

// HasOutgoing reports whether EnsureOutgoing was ever called on the bus.
func (j *Journal) HasOutgoing(ctx context.Context) (bool, error) {
	_, err := j.JetStream().Consumer(ctx, bus.StreamSessions, outgoingDurable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	if err != nil {
		return false, bus.TransportError("looking up the consumer of outgoing commits", err)
	}
	return true, nil
}

// OutgoingProgress returns how far outgoing commits have been handled: every one up to floor, and all
// that the log has if all is true.
func (j *Journal) OutgoingProgress(ctx context.Context) (floor uint64, all bool, err error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	c, err := j.JetStream().Consumer(ctx, bus.StreamSessions, outgoingDurable) // with fresh figures
	if err != nil {
		return 0, false, bus.TransportError("looking up the consumer of outgoing commits", err)
	}
	i := c.CachedInfo()
	return i.AckFloor.Stream, i.NumPending == 0 && i.NumAckPending == 0, nil
}

// ConsumeOutgoing delivers the sequence of every outgoing commit at least once, to one of the
// processes that call it, until a handler returns nil for it. If the consumer is lost, it begins
// again after floor. The handler is called for one commit after the other.
func (j *Journal) ConsumeOutgoing(
	ctx context.Context, floor func() uint64, handler func(ctx context.Context, ref subject.Ref, seq uint64) error,
) (*Consumption, error) {
	l := &pullLoop{
		worker: j.newWorker(outgoingDurable), stream: bus.StreamSessions, config: outgoingConfig(), floor: floor,
	}
	l.handle = func(m *nats.Msg, meta *nats.MsgMetadata) { j.handleOutgoing(ctx, m, meta.Sequence.Stream, handler) }
	if err := j.startPull(ctx, l); err != nil {
		return nil, err
	}
	return &Consumption{l}, nil
}

func (j *Journal) handleOutgoing(
	ctx context.Context, m *nats.Msg, seq uint64, handler func(context.Context, subject.Ref, uint64) error,
) {
	ack := func(word string) {
		// A lost acknowledgement only costs another delivery.
		_ = j.ctl.Send(&nats.Msg{Subject: m.Reply, Data: []byte(word)})
	}
	if m.Header.Get(headerOutgoing) == "" || IsNoise(bus.StoredMsg{Subject: m.Subject, Header: m.Header}) {
		ack("+ACK")
		return
	}
	ref, err := subject.ParseCommit(m.Subject)
	if err != nil {
		j.log.Warn("dropping a commit with an invalid subject", "subject", m.Subject, "error", err)
		ack("+TERM")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if err := handler(ctx, ref, seq); err != nil {
		j.log.Warn("preparing what a commit delivers failed; it will be redelivered", "commit", seq, "error", err)
		ack(fmt.Sprintf(`-NAK {"delay": %d}`, time.Second.Nanoseconds()))
		return
	}
	ack("+ACK")
}

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// DurableCauses is the name of the consumer of causes that all cores share.
const DurableCauses = "core"

// ConsumeConfig is the configuration of [Journal.ConsumeCauses].
type ConsumeConfig struct {
	Durable string        // the consumer's name, shared by all replicas; default DurableCauses
	AckWait time.Duration // a delivery is repeated if not acknowledged or extended for this long; default 5 s
	// Floor returns a sequence up to which every cause of every session is known to be done.
	// It may be called at any time, whenever the consumer must be created; nil means 0. A
	// floor that is too high loses causes, one that is too low only costs deliveries.
	Floor func() uint64
	// Room reports whether more causes can be handled now. It is called before each batch is
	// requested: a cause that is not delivered waits in the log and needs no extension. While
	// Room returns false, a few causes are requested twice a second. nil means always true.
	Room func() bool
}

// Delivery is a cause that was delivered to this process. It is delivered again, here or to
// another process, until it is acknowledged.
type Delivery struct {
	bus.StoredMsg
	NumDelivered uint64 // 1 the first time, as far as the server remembers

	j     *Journal
	reply string
}

// Ack acknowledges that the cause is done. If the acknowledgement is lost, the cause is
// delivered again.
func (d Delivery) Ack() error { return d.answer("+ACK") }

// InProgress extends the delivery by another AckWait.
func (d Delivery) InProgress() error { return d.answer("+WPI") }

// Nak returns the cause to the server, to be delivered again after the delay.
func (d Delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.answer("-NAK")
	}
	return d.answer(`-NAK {"delay": ` + strconv.FormatInt(delay.Nanoseconds(), 10) + `}`)
}

func (d Delivery) answer(word string) error {
	if err := d.j.ctl.Send(&nats.Msg{Subject: d.reply, Data: []byte(word)}); err != nil {
		return bus.TransportError("answering the delivery of "+strconv.FormatUint(d.Seq, 10), err)
	}
	return nil
}

// Consumption is a running consumption.
type Consumption struct{ loop *pullLoop }

// ConsumeCauses delivers the causes of all sessions at least once, each to one of the
// processes that share the durable name. The order is not reliable after a redelivery. The
// handler is called for one delivery after the other and must return soon; long work belongs
// on other goroutines, which extend the delivery with InProgress.
//
// The consumer's state is only in the server's memory. If the server restarts, or the
// consumer is deleted, it is created again from the floor within about two seconds, and
// causes that were already done may be delivered again.
func (j *Journal) ConsumeCauses(ctx context.Context, c ConsumeConfig, handler func(Delivery)) (*Consumption, error) {
	c.Durable = cmp.Or(c.Durable, DurableCauses)
	c.AckWait = cmp.Or(c.AckWait, 5*time.Second)
	if !subject.Valid(c.Durable) {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "consuming causes: durable %q is not a valid id", c.Durable)
	}
	l := &pullLoop{
		worker: j.newWorker(c.Durable), stream: bus.StreamSessions, floor: c.Floor, room: c.Room,
		config: jetstream.ConsumerConfig{
			Durable: c.Durable, FilterSubject: subject.AllCauses,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait,
			MaxDeliver: -1, MaxAckPending: -1, MemoryStorage: true,
		},
		handle: func(m *nats.Msg, meta *nats.MsgMetadata) {
			handler(Delivery{
				StoredMsg: bus.StoredMsg{
					Seq: meta.Sequence.Stream, Time: meta.Timestamp, Subject: m.Subject, Header: m.Header, Data: m.Data,
				},
				NumDelivered: meta.NumDelivered, j: j, reply: m.Reply,
			})
		},
	}
	j.watchLog()
	if err := j.startPull(ctx, l); err != nil {
		return nil, err
	}
	return &Consumption{l}, nil
}

// Stop ends the consumption and waits until the handler has returned. Deliveries that were
// not acknowledged are delivered again to other processes after AckWait.
func (c *Consumption) Stop() { c.loop.stop() }

// Healed returns how often the consumption had to start again.
func (c *Consumption) Healed() uint64 { return c.loop.healed.Load() }

// AckFloor returns the stream sequence up to which every cause is acknowledged,
// as far as the server remembers, or [bus.ErrNotFound] while there is no consumer.
func (c *Consumption) AckFloor(ctx context.Context) (uint64, error) {
	info, err := c.info(ctx, "reading the acknowledgement floor")
	if err != nil {
		return 0, err
	}
	return info.AckFloor.Stream, nil
}

// Backlog returns how many causes are not acknowledged, delivered or not, or
// [bus.ErrNotFound] while there is no consumer.
func (c *Consumption) Backlog(ctx context.Context) (uint64, error) {
	info, err := c.info(ctx, "reading the backlog")
	if err != nil {
		return 0, err
	}
	return info.NumPending + uint64(info.NumAckPending), nil //nolint:gosec // not negative
}

func (c *Consumption) info(ctx context.Context, doing string) (*jetstream.ConsumerInfo, error) {
	cons, err := c.loop.j.JetStream().Consumer(ctx, c.loop.stream, c.loop.config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("%s: consumer %s: %w", doing, c.loop.config.Durable, bus.ErrNotFound)
	}
	if err != nil {
		return nil, bus.TransportError(doing, err)
	}
	return cons.CachedInfo(), nil
}

package bus

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// The headers of Skandha.
const (
	// DeadlineHeader is the caller's deadline: Unix time in milliseconds, decimal.
	DeadlineHeader = "Skandha-Deadline"
	// ErrorHeader is the [Code] of an error reply.
	ErrorHeader = "Skandha-Error"
	// ClaimHeader is the reference to the stored body of a message that was too large to
	// contain it.
	ClaimHeader = "Skandha-Claim"
)

// ackWait is the timeout for a server's answer if the context has no deadline.
const ackWait = 5 * time.Second

// SettleTime is how long after a reconnect other clients of the same server may still
// be reconnecting.
const SettleTime = 2 * time.Second

// Bus connects one process to NATS, over two connections; see [Link]. Its methods are
// safe for concurrent use.
type Bus struct {
	cfg  Config
	log  *slog.Logger
	ctl  *Link // small, urgent messages
	data *Link // the log and large bodies

	storage  storage
	follower follower
	beacons  beacons
	replies  replies
	missing  *Missing
	foreign  tally // messages of [Bus.Foreign]
	closed   chan struct{}
	refusal  atomic.Bool // that the server refuses the credentials was logged

	mu    sync.Mutex
	back  chan struct{} // closed at the next reconnect of the control connection
	since time.Time     // time of its last reconnect; zero if none
	parts map[part]struct{}

	buckets map[string]jetstream.ObjectStore
}

// part is something that runs on the connection.
type part interface {
	kick() // the control connection was re-established
	// drain stops receiving and returns when everything received has been handled.
	drain(ctx context.Context) error
}

// joined is a part in another package.
type joined struct {
	onReconnect func()
	onDrain     func(context.Context) error
}

func (j *joined) kick()                           { j.onReconnect() }
func (j *joined) drain(ctx context.Context) error { return j.onDrain(ctx) }

// Join adds something that runs on the control connection: reconnected is called when that
// was re-established, and drain by [Bus.Drain]. Call leave when it has ended.
func (b *Bus) Join(reconnected func(), drain func(context.Context) error) (leave func()) {
	p := &joined{reconnected, drain}
	b.addPart(p)
	return func() { b.removePart(p) }
}

func (b *Bus) addPart(p part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[p] = struct{}{}
}

func (b *Bus) removePart(p part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.parts, p)
}

func (b *Bus) allParts() []part {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.parts))
}

// Control returns the link for small, urgent messages.
func (b *Bus) Control() *Link { return b.ctl }

// Log returns the link for the log and large bodies.
func (b *Bus) Log() *Link { return b.data }

// Logger returns the logger, which names this process.
func (b *Bus) Logger() *slog.Logger { return b.log }

// Missing returns what this process knows of streams that do not exist.
func (b *Bus) Missing() *Missing { return b.missing }

// Conn returns the control connection, for operations that this package does not provide.
func (b *Bus) Conn() *nats.Conn { return b.ctl.nc }

// JetStream returns the JetStream context of the control connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.ctl.js }

// Identity returns the name under which this process is connected.
func (b *Bus) Identity() subject.Identity { return b.cfg.Identity }

// Party reports whether the credentials are those of a plugin, listener or program that was invited. It can do
// nothing under another name than [Bus.Identity].
func (b *Bus) Party() bool { return b.cfg.party }

// Instance returns the instance id of this process.
func (b *Bus) Instance() subject.Instance { return b.cfg.Instance }

// Account returns the id of the account that this process's credentials are for; empty: the bus has no
// rights.
func (b *Bus) Account() string { return b.cfg.account }

// Connected reports whether both connections are up.
func (b *Bus) Connected() bool { return b.ctl.nc.IsConnected() && b.data.nc.IsConnected() }

// Closed returns a channel that is closed when both connections are closed for good.
func (b *Bus) Closed() <-chan struct{} { return b.closed }

// MaxPayload returns the maximum size of a message that the server accepts, including headers,
// in bytes.
func (b *Bus) MaxPayload() int64 { return b.ctl.nc.MaxPayload() }

// Drain stops receiving requests and deliveries, waits until the handlers have finished with
// everything received and have answered, flushes, and closes the connections. If ctx ends
// first, it closes them immediately and returns the context's error. A handler must not call
// it: it would wait for itself.
func (b *Bus) Drain(ctx context.Context) error {
	var g sync.WaitGroup
	for _, p := range b.allParts() {
		g.Go(func() {
			if err := p.drain(ctx); err != nil {
				b.log.Warn("draining failed", "error", err)
			}
		})
	}
	g.Wait()
	// The control connection is drained last: it carries acknowledgements of messages that
	// the log connection has stored.
	return errors.Join(b.data.drain(ctx), b.ctl.drain(ctx))
}

// Close closes the connections immediately; messages that were not flushed are lost.
func (b *Bus) Close() {
	b.data.close()
	b.ctl.close()
}

// Reconnected returns a channel that is closed the next time the control connection is
// re-established.
func (b *Bus) Reconnected() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.back
}

// ReconnectedAt returns when the control connection was last re-established; zero if never.
func (b *Bus) ReconnectedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since
}

// Settling reports whether the connection is so new that other clients, which lost theirs at
// the same time, may not have subscribed again. Until then, a missing subscriber does not
// mean that there is none.
func (b *Bus) Settling() bool {
	at := b.ReconnectedAt()
	return !at.IsZero() && time.Since(at) < SettleTime
}

// reconnected restarts everything that runs on the control connection.
func (b *Bus) reconnected(l *Link) {
	b.refusal.Store(false)
	if b.cfg.InProcess == nil {
		b.follow()
	}
	if l != b.ctl {
		return
	}
	b.mu.Lock()
	close(b.back)
	b.back, b.since = make(chan struct{}), time.Now()
	b.mu.Unlock()
	for _, p := range b.allParts() {
		p.kick()
	}
}

// publish sends m over a link, with the trace of ctx.
func (b *Bus) publish(ctx context.Context, l *Link, m *nats.Msg) error {
	if m.Header == nil {
		m.Header = make(nats.Header, 2)
	}
	telemetry.Inject(ctx, m.Header)
	if err := b.checkSize(m); err != nil {
		return err
	}
	return l.Send(m)
}

// checkSize rejects messages for which the server would close the connection.
func (b *Bus) checkSize(m *nats.Msg) error {
	size, limit := int64(len(m.Data)+headerSize(m.Header)), b.MaxPayload()
	if limit > 0 && size > limit {
		return Errorf(CodeTooLarge, "message for %s has %d bytes with its header, the server accepts %d (max_payload)",
			m.Subject, size, limit)
	}
	return nil
}

func headerSize(h nats.Header) int {
	if len(h) == 0 {
		return 0
	}
	n := len("NATS/1.0\r\n\r\n")
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + len(": \r\n")
		}
	}
	return n
}

// Publish publishes a message that is not acknowledged, such as an announcement.
func (b *Bus) Publish(ctx context.Context, subj string, hdr nats.Header, body []byte) error {
	if err := b.publish(ctx, b.ctl, &nats.Msg{Subject: subj, Header: hdr, Data: body}); err != nil {
		return TransportError("publishing on "+subj, err)
	}
	return nil
}

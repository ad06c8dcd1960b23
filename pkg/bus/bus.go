package bus

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// Headers of Skandha's own.
const (
	// DeadlineHeader is when the caller gives up: Unix time in milliseconds, decimal.
	DeadlineHeader = "Skandha-Deadline"
	// ErrorHeader is the [Code] of a reply that is an error.
	ErrorHeader = "Skandha-Error"
	// ClaimHeader names the stored body of a message that was too large to carry it.
	ClaimHeader = "Skandha-Claim"
)

// ackWait bounds the wait for a server's answer when the context has no deadline.
const ackWait = 5 * time.Second

// SettleTime is how long after a reconnect other clients of the same server may still
// be reconnecting.
const SettleTime = 2 * time.Second

// Bus connects one process to NATS, over two connections; see [link]. Its methods are
// safe for concurrent use.
type Bus struct {
	cfg  Config
	log  *slog.Logger
	ctl  *link // small, urgent messages
	data *link // the log and large bodies
	js   jetstream.JetStream

	storage  storage
	beacons  beacons
	replies  replies
	copies   *copies   // of SESSIONS
	known    *known    // streams
	advisory sync.Once // of its changes
	closed   chan struct{}

	mu    sync.Mutex
	back  chan struct{} // closed at the next reconnect of the control connection
	since time.Time     // time of its last reconnect; zero if none
	parts map[part]struct{}

	bodies  jetstream.JetStream // on the link of the log
	buckets map[string]jetstream.ObjectStore
	usage   *usage // of the bucket artifacts
}

// part is something that runs on the connection.
type part interface {
	kick() // the control connection was re-established
	// drain takes nothing new and returns when what came is handled.
	drain(ctx context.Context) error
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

// Conn is the control connection, for what this package does not cover.
func (b *Bus) Conn() *nats.Conn { return b.ctl.nc }

// JetStream is the JetStream context of the control connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Instance is the id of this run of the process.
func (b *Bus) Instance() subject.Instance { return b.cfg.Instance }

// Connected reports whether both connections are up.
func (b *Bus) Connected() bool { return b.ctl.nc.IsConnected() && b.data.nc.IsConnected() }

// Closed is closed when the connections have ended for good.
func (b *Bus) Closed() <-chan struct{} { return b.closed }

// MaxPayload is the largest message the server takes, headers included, in bytes.
func (b *Bus) MaxPayload() int64 { return b.ctl.nc.MaxPayload() }

// Drain takes no new requests and deliveries, lets the handlers of what has come
// finish and answer, flushes and closes. It returns when that is done; when ctx
// ends first, it closes at once and returns the context's error. It must not be
// called by a handler, which would wait for itself.
func (b *Bus) Drain(ctx context.Context) error {
	var g sync.WaitGroup
	for _, p := range b.allParts() {
		g.Go(func() {
			if err := p.drain(ctx); err != nil {
				b.log.Warn("draining", "error", err)
			}
		})
	}
	g.Wait()
	// The control connection goes last: it carries acknowledgements of what the log
	// connection has stored.
	return errors.Join(b.data.drain(ctx), b.ctl.drain(ctx))
}

// Close closes the connections at once; what was not flushed is lost.
func (b *Bus) Close() {
	b.data.close()
	b.ctl.close()
}

// Reconnected is closed the next time the control connection is re-established.
func (b *Bus) Reconnected() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.back
}

// ReconnectedAt is when the control connection was last re-established; zero if never.
func (b *Bus) ReconnectedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since
}

// Settling reports whether the connection is so new that other clients, which lost
// theirs at the same time, may not have subscribed again. Until then, a subject
// without subscribers means little.
func (b *Bus) Settling() bool {
	at := b.ReconnectedAt()
	return !at.IsZero() && time.Since(at) < SettleTime
}

// reconnected restarts everything that runs on the control connection.
func (b *Bus) reconnected(l *link) {
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
func (b *Bus) publish(ctx context.Context, l *link, m *nats.Msg) error {
	if m.Header == nil {
		m.Header = make(nats.Header, 2)
	}
	telemetry.Inject(ctx, m.Header)
	if err := b.checkSize(m); err != nil {
		return err
	}
	return l.send(m)
}

// checkSize refuses what the server would answer by closing the connection.
func (b *Bus) checkSize(m *nats.Msg) error {
	size, limit := int64(len(m.Data)+headerSize(m.Header)), b.MaxPayload()
	if limit > 0 && size > limit {
		return Errorf(CodeTooLarge, "message for %s has %d bytes with its header, the server takes %d (max_payload)",
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

// PublishLive sends the live copy of an event, or a token delta, of the session:
// no acknowledgement, no storage. The subject must be one of [subject.Ref.Live]
// or [subject.Ref.Stream] of ref.
func (b *Bus) PublishLive(ctx context.Context, ref subject.Ref, subj string, hdr nats.Header, body []byte) error {
	if subj != ref.Stream() {
		if owner, _, _, err := subject.ParseLive(subj); err != nil || owner != ref {
			return Errorf(CodeInvalidArgument, "subject %q is no live subject of %s", subj, ref)
		}
	}
	if err := b.publish(ctx, b.ctl, &nats.Msg{Subject: subj, Header: hdr, Data: body}); err != nil {
		return transportError("publishing live on "+subj, err)
	}
	return nil
}

// Publish sends a message that nobody acknowledges, such as an announcement.
func (b *Bus) Publish(ctx context.Context, subj string, hdr nats.Header, body []byte) error {
	if err := b.publish(ctx, b.ctl, &nats.Msg{Subject: subj, Header: hdr, Data: body}); err != nil {
		return transportError("publishing on "+subj, err)
	}
	return nil
}

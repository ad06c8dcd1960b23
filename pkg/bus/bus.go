package bus

import (
	"context"
	"errors"
	"fmt"
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

// Bus is one process's connection. Its methods may be used at the same time.
type Bus struct {
	cfg   Config
	log   *slog.Logger
	nc    *nats.Conn
	js    jetstream.JetStream
	inbox *inbox

	replicas atomic.Int32 // of SESSIONS; 0: not known
	closed   chan struct{}

	mu    sync.Mutex
	lost  chan struct{} // closed at the next disconnect
	parts map[part]struct{}

	buckets map[string]jetstream.ObjectStore
}

// part is something that runs on the connection.
type part interface {
	kick() // the connection was made anew
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

// Conn is the connection, for what this package does not cover.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// JetStream is the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Instance is the id of this run of the process.
func (b *Bus) Instance() subject.Instance { return b.cfg.Instance }

// Connected reports whether the connection stands now.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Closed is closed when the connection has ended for good.
func (b *Bus) Closed() <-chan struct{} { return b.closed }

// MaxPayload is the largest message the server takes, headers included, in bytes.
func (b *Bus) MaxPayload() int64 { return b.nc.MaxPayload() }

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
	err := b.nc.Drain()
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	if err != nil {
		b.nc.Close()
		<-b.closed
		return nil //nolint:nilerr // not connected: there is nothing to drain
	}
	select {
	case <-b.closed:
		return nil
	case <-ctx.Done():
		b.nc.Close()
		return fmt.Errorf("draining the bus: %w", ctx.Err())
	}
}

// Close closes the connection at once; what was not flushed is lost.
func (b *Bus) Close() { b.nc.Close() }

// lostChan is closed when the connection that stands now is lost.
func (b *Bus) lostChan() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

func (b *Bus) disconnected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.lost)
	b.lost = make(chan struct{})
	b.replicas.Store(0) // may have been changed while we were away
}

func (b *Bus) reconnected() {
	for _, p := range b.allParts() {
		p.kick()
	}
}

// publish sends m with the trace of ctx.
func (b *Bus) publish(ctx context.Context, m *nats.Msg) error {
	if m.Header == nil {
		m.Header = make(nats.Header, 2)
	}
	telemetry.Inject(ctx, m.Header)
	if err := b.checkSize(m); err != nil {
		return err
	}
	return b.send(m)
}

// send hands m to the connection, or fails at once when there is none.
func (b *Bus) send(m *nats.Msg) error {
	err := b.nc.PublishMsg(m)
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return fmt.Errorf("there is no connection to the bus: %w", nats.ErrDisconnected)
	}
	return err
}

// checkSize refuses what the server would answer by closing the connection.
func (b *Bus) checkSize(m *nats.Msg) error {
	size, limit := int64(len(m.Data)+headerSize(m.Header)), b.nc.MaxPayload()
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
	if err := b.publish(ctx, &nats.Msg{Subject: subj, Header: hdr, Data: body}); err != nil {
		return transportError("publishing live on "+subj, err)
	}
	return nil
}

// Publish sends a message that nobody acknowledges, such as an announcement.
func (b *Bus) Publish(ctx context.Context, subj string, hdr nats.Header, body []byte) error {
	if err := b.publish(ctx, &nats.Msg{Subject: subj, Header: hdr, Data: body}); err != nil {
		return transportError("publishing on "+subj, err)
	}
	return nil
}

package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Link is one of the two connections of a [Bus].
//
// A server handles the messages of one connection in order, and a message for a synced
// stream holds up everything behind it. So the log and large bodies use one link,
// which keeps an append and the read of its outcome in order. Everything else
// (acknowledgements, pull requests, announcements, requests and answers) uses the
// other link and waits for no disk. See schemas/adr/0018.
type Link struct {
	b      *Bus
	name   string // [controlLink] or [logLink], for people
	nc     *nats.Conn
	js     jetstream.JetStream
	inbox  *inbox
	closed chan struct{}
	opened atomic.Bool // it was connected

	mu   sync.Mutex
	lost chan struct{} // closed at the next disconnect
}

// The names of the links.
const (
	controlLink = "control"
	logLink     = "log"
)

func newLink(b *Bus, name string) *Link {
	return &Link{b: b, name: name, closed: make(chan struct{}), lost: make(chan struct{})}
}

// open connects. For an in-process server it repeats the first attempt, which the
// client does not; see [connectTries].
func (l *Link) open(ctx context.Context, opts []nats.Option) (err error) {
	for try := range connectTries {
		l.nc, err = nats.Connect(l.b.cfg.URL, slices.Concat(opts, l.handlers())...)
		if err == nil || l.b.cfg.InProcess == nil || isAuthError(err) || ctx.Err() != nil {
			break
		}
		select { // others try again as well
		case <-ctx.Done():
		case <-time.After(rand.N(connectPause << try)):
		}
	}
	if isAuthError(err) {
		err = l.b.refused(err)
	}
	if err != nil {
		return fmt.Errorf("connecting to the bus %s: %w", l.b.where(), err)
	}
	if err := l.await(ctx); err != nil {
		return err
	}
	l.opened.Store(true)
	if l.js, err = jetstream.New(l.nc, jetstream.WithDefaultTimeout(ackWait)); err == nil {
		l.inbox, err = newInbox(l.nc)
	}
	if err != nil {
		return fmt.Errorf("connecting to the bus %s: %w", l.b.where(), err)
	}
	return nil
}

func (l *Link) handlers() []nats.Option {
	options := []nats.Option{
		nats.Name(string(l.b.cfg.Instance) + "/" + l.name),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.disconnected()
			if err != nil && !l.b.warnRefused(err) {
				l.b.log.Warn("bus connection lost", "connection", l.name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			l.b.log.Info("bus connection restored", "connection", l.name, "server", nc.ConnectedServerName())
			l.b.reconnected(l)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if l.opened.Load() { // else open returns it
				l.b.warnRefused(err)
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { l.failed(sub, err) }),
	}
	if l.name == logLink && l.b.cfg.InProcess == nil {
		options = append(options, nats.ReconnectToServer(l.b.choose))
	}
	return options
}

// failed handles errors that the server or the client reports asynchronously.
func (l *Link) failed(sub *nats.Subscription, err error) {
	if l.opened.Load() && l.b.warnRefused(err) {
		return
	}
	subj := ""
	if sub != nil {
		subj = sub.Subject
	}
	level := slog.LevelWarn
	if errors.Is(err, nats.ErrBadHeaderMsg) {
		level = slog.LevelDebug // caused by a publisher; it is handled, and may be frequent
	}
	if subj, ok := deniedSubject(err); ok {
		l.b.denied(subj)
	}
	l.b.log.Log(context.Background(), level, "bus error", "connection", l.name, "subject", subj, "error", err)
}

// await returns once the link is connected.
func (l *Link) await(ctx context.Context) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	say := time.NewTicker(3 * time.Second)
	defer say.Stop()
	for !l.nc.IsConnected() {
		if err := l.nc.LastError(); isAuthError(err) {
			return fmt.Errorf("connecting to the bus %s: %w", l.b.where(), l.b.refused(err))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connecting to the bus %s: %w (last error: %w)",
				l.b.where(), ctx.Err(), l.lastError())
		case <-say.C:
			l.b.log.Info("waiting for the bus", "url", l.b.where(), "error", l.lastError())
		case <-poll.C:
		}
	}
	return nil
}

func (l *Link) lastError() error {
	if err := l.nc.LastError(); err != nil {
		return err
	}
	return nats.ErrNoServers
}

// close closes the connection at once, if there is one.
func (l *Link) close() {
	if l.nc != nil {
		l.nc.Close()
	}
}

// drain flushes what was sent and closes the connection. If ctx ends first, it closes
// at once.
func (l *Link) drain(ctx context.Context) error {
	err := l.nc.Drain()
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	if err != nil {
		l.nc.Close()
		<-l.closed
		return nil //nolint:nilerr // not connected: there is nothing to drain
	}
	select {
	case <-l.closed:
		return nil
	case <-ctx.Done():
		l.nc.Close()
		return fmt.Errorf("draining the bus: %w", ctx.Err())
	}
}

// JetStream returns the JetStream context of the link.
func (l *Link) JetStream() jetstream.JetStream { return l.js }

// Listen calls a function for every answer to a message on a subject that is sent with the
// reply subject, until forget is called. The function runs on the connection's goroutine and
// must not block.
func (l *Link) Listen(subj string, f func(*nats.Msg)) (reply string, forget func()) {
	n, reply := l.inbox.ask(subj, f)
	return reply, func() { l.inbox.forget(n) }
}

// Lost is closed when the current connection is lost.
func (l *Link) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *Link) disconnected() {
	l.mu.Lock()
	close(l.lost)
	l.lost = make(chan struct{})
	l.mu.Unlock()
}

// Send passes m to the connection, or fails immediately if there is none.
func (l *Link) Send(m *nats.Msg) error {
	err := l.nc.PublishMsg(m)
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return fmt.Errorf("not connected to the bus: %w", nats.ErrDisconnected)
	}
	return err
}

// askAgain is when an unanswered question is asked again: a server that is just
// starting drops some.
const askAgain = 1500 * time.Millisecond

// Ask sends a question to the server and waits for the answer. It may send the
// question twice.
func (l *Link) Ask(ctx context.Context, subj string, body []byte) (*nats.Msg, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, askAgain)
		m, err := l.askOnce(attempt, subj, body)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return m, err
		}
	}
}

func (l *Link) askOnce(ctx context.Context, subj string, body []byte) (*nats.Msg, error) {
	answer, lost := make(chan *nats.Msg, 1), l.Lost()
	n, reply := l.inbox.ask(subj, func(m *nats.Msg) {
		select {
		case answer <- m:
		default:
		}
	})
	defer l.inbox.forget(n)
	if err := l.Send(&nats.Msg{Subject: subj, Reply: reply, Data: body}); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if noResponders(m) {
			return nil, nats.ErrNoResponders
		}
		return m, deniedError(m)
	case <-lost:
		return nil, nats.ErrDisconnected
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Bounded adds the default timeout to ctx if it has no deadline.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, ackWait)
}

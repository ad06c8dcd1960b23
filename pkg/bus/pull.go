package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pullBatch = 256
	pullBytes = 32 << 20
	// A process that stalls, or is cut off, leaves its request behind, and the
	// server would give it messages until it expires: each comes again elsewhere
	// only after AckWait, and looks as if handling it had failed.
	pullExpires   = 2 * time.Second
	pullHeartbeat = 500 * time.Millisecond
	pullSilence   = 5 * pullHeartbeat / 2 // no sign of life for so long: look what is wrong
	healPause     = 250 * time.Millisecond
	roomEvery     = 5 * time.Millisecond
	// However little room there is, what comes may be a person's word, which needs none.
	roomAtMost = 500 * time.Millisecond
	smallBatch = 16
)

// pullLoop consumes a durable consumer for ever. It keeps one pull request open;
// whenever the server is silent, the connection was lost, or the request was
// answered by an error, it looks whether the consumer is there, makes it again
// if it is not, and pulls anew.
//
// It does not use the client's Consume, which takes a stored message with an
// empty body and a header "Status" for one of the server's own: whoever may
// publish a cause could stop it. Here a message is what comes on another subject
// than that of the request.
type pullLoop struct {
	b       *Bus
	stream  string
	config  jetstream.ConsumerConfig
	floor   func() uint64 // where a consumer that must be made begins; nil: at what is there
	room    func() bool   // nil: always
	handle  func(*nats.Msg, *nats.MsgMetadata)
	healed  atomic.Uint64 // how often it started anew
	kicked  chan struct{} // the connection was made anew
	stopped chan struct{}
	stopOne sync.Once
	done    chan struct{}
}

func (b *Bus) startPull(ctx context.Context, l *pullLoop) error {
	if err := l.ensure(ctx); err != nil {
		return err
	}
	l.kicked, l.stopped, l.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	b.addPart(l)
	go l.run()
	return nil
}

// kick makes a waiting loop start anew at once.
func (l *pullLoop) kick() {
	select {
	case l.kicked <- struct{}{}:
	default: // it will anyway
	}
}

// stop ends the loop and waits until the handler has returned.
func (l *pullLoop) stop() { _ = l.drain(context.Background()) }

func (l *pullLoop) drain(ctx context.Context) error {
	l.stopOne.Do(func() { close(l.stopped) })
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the handler of %s: %w", l.config.Durable, ctx.Err())
	}
}

func (l *pullLoop) over() bool {
	select {
	case <-l.stopped:
		return true
	case <-l.b.closed:
		return true
	default:
		return false
	}
}

func (l *pullLoop) run() {
	defer close(l.done)
	defer l.b.removePart(l)
	// Room for a batch, and for the heartbeats while the handler is slow; what does
	// not fit comes again. A channel, because the client's NextMsg takes a stored
	// message "Status: 503" for the server's word.
	msgs, inbox := make(chan *nats.Msg, 2*pullBatch), l.b.ctl.nc.NewInbox()
	sub, err := l.b.ctl.nc.ChanSubscribe(inbox+".*", msgs)
	if err != nil {
		return // only when the connection is closed for good
	}
	defer func() { _ = sub.Unsubscribe() }()
	for n := uint64(1); !l.over(); n++ {
		batch := l.awaitRoom()
		// Each request has its own subject, so that the end of an older one is not
		// taken for that of the newest, and what an older one brings is not lost.
		began := time.Now()
		if err := l.pull(msgs, inbox+"."+strconv.FormatUint(n, 36), batch); err != nil && !l.over() {
			l.b.log.Debug("pulling anew", "stream", l.stream, "reason", err)
			l.healed.Add(1)
			l.heal()
			l.pause(healPause - time.Since(began)) // a request that fails again and again
		}
	}
}

// awaitRoom waits for room, but not for long, and returns how much to ask for.
func (l *pullLoop) awaitRoom() (batch int) {
	if l.room == nil {
		return pullBatch
	}
	for began := time.Now(); !l.over(); l.pause(roomEvery) {
		if l.room() {
			return pullBatch
		}
		if time.Since(began) > roomAtMost {
			return smallBatch
		}
	}
	return smallBatch
}

func (l *pullLoop) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.stopped:
	case <-l.b.closed:
	case <-l.kicked:
	case <-t.C:
	}
}

// heal makes sure that there is a consumer; it returns when there is, or when the
// loop is over.
func (l *pullLoop) heal() {
	said := time.Now()
	for !l.over() {
		if l.b.ctl.nc.IsConnected() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := l.ensure(ctx)
			cancel()
			if err == nil {
				return
			}
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				l.b.known.missed()
			}
			if time.Since(said) > 3*time.Second {
				l.b.log.Warn("consumer is not available", "stream", l.stream, "error", err)
				said = time.Now()
			}
		}
		l.pause(healPause)
	}
}

// ensure looks for the consumer and makes it if it is gone.
func (l *pullLoop) ensure(ctx context.Context) error {
	want := l.config
	c, err := l.b.js.Consumer(ctx, l.stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if l.floor != nil {
			want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, l.floor()+1
		}
		_, err = l.b.js.CreateConsumer(ctx, l.stream, want)
		if err == nil {
			l.b.log.Info("consumer created", "stream", l.stream, "consumer", want.Durable, "start", want.OptStartSeq)
			return nil
		}
		if !errors.Is(err, jetstream.ErrConsumerExists) {
			return fmt.Errorf("creating consumer %s of %s: %w", want.Durable, l.stream, err)
		}
		// Another process was faster; where it starts is as good.
		c, err = l.b.js.Consumer(ctx, l.stream, want.Durable)
	}
	if err != nil {
		return fmt.Errorf("looking up consumer %s of %s: %w", want.Durable, l.stream, err)
	}
	have := c.CachedInfo().Config
	if have.FilterSubject != want.FilterSubject || have.AckPolicy != want.AckPolicy || have.DeliverSubject != "" {
		return fmt.Errorf("consumer %s of %s is someone else's: its filter is %q, its acknowledgement policy %s; remove it by hand",
			want.Durable, l.stream, have.FilterSubject, have.AckPolicy)
	}
	mended := have
	mended.AckWait, mended.MaxDeliver, mended.MaxAckPending = want.AckWait, want.MaxDeliver, want.MaxAckPending
	if mended.AckWait == have.AckWait && mended.MaxDeliver == have.MaxDeliver && mended.MaxAckPending == have.MaxAckPending {
		return nil
	}
	if _, err := l.b.js.UpdateConsumer(ctx, l.stream, mended); err != nil {
		return fmt.Errorf("changing consumer %s of %s: %w", want.Durable, l.stream, err)
	}
	return nil
}

var (
	errPullOver   = errors.New("the consumption is over")
	errPullKicked = errors.New("the connection was made anew")
	errPullSilent = errors.New("the server is silent")
)

// pull makes one request and handles what it brings. It returns nil when the
// request came to its ordinary end.
func (l *pullLoop) pull(msgs <-chan *nats.Msg, reply string, batch int) error {
	req, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int64         `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{batch, max(pullBytes, 2*l.b.ctl.nc.MaxPayload()), pullExpires, pullHeartbeat})
	if err != nil {
		return err
	}
	select {
	case <-l.kicked: // it was for the request before
	default:
	}
	err = l.b.ctl.send(&nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + l.stream + "." + l.config.Durable, Reply: reply, Data: req})
	if err != nil {
		return err
	}
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	for got := 0; got < batch; {
		select {
		case <-l.stopped:
			return errPullOver
		case <-l.b.closed:
			return errPullOver
		case <-l.kicked:
			return errPullKicked
		case <-silence.C:
			return errPullSilent
		case m := <-msgs:
			switch {
			case m.Subject == reply:
				if over, err := control(m); over || err != nil {
					return err
				}
			case strings.HasPrefix(m.Subject, reply[:strings.LastIndexByte(reply, '.')+1]):
				continue // about an older request
			default:
				got++
				if err := l.take(m); err != nil {
					return err
				}
			}
			silence.Reset(pullSilence)
		}
	}
	return nil
}

func (l *pullLoop) take(m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("message on %s without metadata: %w", m.Subject, err)
	}
	l.handle(m, meta)
	return nil
}

// control reads one of the server's own messages: whether the request has come to
// its ordinary end, or what is wrong.
func control(m *nats.Msg) (over bool, err error) {
	status, desc := m.Header.Get("Status"), m.Header.Get("Description")
	switch status {
	case "100": // heartbeat
		return false, nil
	case "404", "408": // nothing more in this request
		return true, nil
	case "409":
		if desc == "Batch Completed" || desc == "Message Size Exceeds MaxBytes" {
			return true, nil
		}
	}
	return true, fmt.Errorf("the server said %s %s", status, desc)
}

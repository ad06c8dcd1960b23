package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

const (
	pullBatch = 256
	pullBytes = 32 << 20
	// If a process stalls or is disconnected, the server still delivers messages for its
	// request until that expires: each is redelivered only after AckWait, and looks as if
	// handling it had failed.
	pullExpires   = 2 * time.Second
	pullHeartbeat = 500 * time.Millisecond
	pullSilence   = 5 * pullHeartbeat / 2 // without any message for this long, check the consumer
	healPause     = 250 * time.Millisecond
	roomEvery     = 5 * time.Millisecond
	// Even without room, request a few causes: a user's answer or cancel needs none.
	roomAtMost = 500 * time.Millisecond
	smallBatch = 16
)

// pullLoop consumes messages of a durable consumer until it is stopped. It keeps one pull
// request open. Whenever the server is silent, the connection was lost, or the request
// failed, it creates the consumer if it no longer exists, and pulls again.
//
// It does not use the client's Consume, which takes a stored message with an empty body and a
// header "Status" for a message of the server: any client that may publish a cause could stop
// it. Here, a stored message is one that arrives on another subject than that of the request.
type pullLoop struct {
	*worker
	stream string
	config jetstream.ConsumerConfig
	floor  func() uint64 // where a new consumer begins; nil: at the first message
	room   func() bool   // nil: always
	batch  int           // with room; default pullBatch
	handle func(*nats.Msg, *nats.MsgMetadata)
	healed atomic.Uint64 // how often it started again
}

func (j *Journal) startPull(ctx context.Context, l *pullLoop) error {
	if err := l.ensure(ctx); err != nil {
		return err
	}
	leave := j.Join(l.kick, l.drain)
	go l.run(leave)
	return nil
}

func (l *pullLoop) run(leave func()) {
	defer close(l.done)
	defer leave()
	// The buffer holds a batch, and the heartbeats while the handler is slow; what does not
	// fit is redelivered. A channel, because the client's NextMsg takes a stored message with
	// "Status: 503" for an answer of the server.
	msgs, inbox := make(chan *nats.Msg, 2*pullBatch), l.j.Conn().NewInbox()
	sub, err := l.j.Conn().ChanSubscribe(inbox+".*", msgs)
	if err != nil {
		return // only when the connection is closed for good
	}
	defer func() { _ = sub.Unsubscribe() }()
	for n := uint64(1); !l.over(); n++ {
		batch := l.awaitRoom()
		// Each request has its own subject, so that the end of an older one is not taken for
		// that of the newest, and messages for an older one are not lost.
		began := time.Now()
		if err := l.pull(msgs, inbox+"."+strconv.FormatUint(n, 36), batch); err != nil && !l.over() {
			l.j.log.Debug("pulling again", "stream", l.stream, "reason", err)
			l.healed.Add(1)
			l.heal()
			l.pause(healPause - time.Since(began)) // in case requests fail repeatedly
		}
	}
}

// awaitRoom waits for room, but not for long, and returns the size of the next batch.
func (l *pullLoop) awaitRoom() (batch int) {
	most := cmp.Or(l.batch, pullBatch)
	if l.room == nil {
		return most
	}
	for began := time.Now(); !l.over(); l.pause(roomEvery) {
		if l.room() {
			return most
		}
		if time.Since(began) > roomAtMost {
			return smallBatch
		}
	}
	return smallBatch
}

// heal ensures that the consumer exists. It returns when it does, or when the loop has ended.
func (l *pullLoop) heal() {
	said := time.Now()
	for !l.over() {
		if l.j.Conn().IsConnected() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := l.ensure(ctx)
			cancel()
			if err == nil {
				return
			}
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				l.j.Missing().Note()
			}
			if time.Since(said) > 3*time.Second {
				l.j.log.Warn("consumer is not available", "stream", l.stream, "error", err)
				said = time.Now()
			}
		}
		l.pause(healPause)
	}
}

// ensure looks up the consumer and creates it if it does not exist.
func (l *pullLoop) ensure(ctx context.Context) error {
	want, changed := l.config, false
	c, err := l.j.JetStream().Consumer(ctx, l.stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if l.floor != nil {
			want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, l.floor()+1
		}
		_, err = l.j.JetStream().CreateConsumer(ctx, l.stream, want)
		if err == nil {
			l.j.log.Info("consumer created", "stream", l.stream, "consumer", want.Durable, "start", want.OptStartSeq)
			return nil
		}
		if !errors.Is(err, jetstream.ErrConsumerExists) {
			return fmt.Errorf("creating consumer %s of %s: %w", want.Durable, l.stream, err)
		}
		// Another process has created it; its start is equally valid.
		c, err = l.j.JetStream().Consumer(ctx, l.stream, want.Durable)
	}
	if err != nil {
		return fmt.Errorf("looking up consumer %s of %s: %w", want.Durable, l.stream, err)
	}
	have := c.CachedInfo().Config
	if have.FilterSubject == subject.AllSensed && want.FilterSubject == subject.AllCauses {
		have.FilterSubject = want.FilterSubject // of contract 1
		changed = true
	}
	if have.FilterSubject != want.FilterSubject || have.AckPolicy != want.AckPolicy || have.DeliverSubject != "" {
		return fmt.Errorf("consumer %s of %s was not created by Skandha: its filter is %q, "+
			"its acknowledgement policy %s; remove it by hand",
			want.Durable, l.stream, have.FilterSubject, have.AckPolicy)
	}
	mended := have
	mended.AckWait, mended.MaxDeliver, mended.MaxAckPending = want.AckWait, want.MaxDeliver, want.MaxAckPending
	if !changed && mended.AckWait == have.AckWait && mended.MaxDeliver == have.MaxDeliver &&
		mended.MaxAckPending == have.MaxAckPending {
		return nil
	}
	if _, err := l.j.JetStream().UpdateConsumer(ctx, l.stream, mended); err != nil {
		return fmt.Errorf("changing consumer %s of %s: %w", want.Durable, l.stream, err)
	}
	return nil
}

var (
	errPullOver   = errors.New("the consumption has ended")
	errPullKicked = errors.New("the connection was re-established")
	errPullSilent = errors.New("the server is silent")
)

// pull sends one request and handles its messages. It returns nil if the request ended
// normally.
func (l *pullLoop) pull(msgs <-chan *nats.Msg, reply string, batch int) error {
	req, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int64         `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{batch, max(pullBytes, 2*l.j.Conn().MaxPayload()), pullExpires, pullHeartbeat})
	if err != nil {
		return err
	}
	select {
	case <-l.kicked: // for the previous request
	default:
	}
	err = l.j.ctl.Send(&nats.Msg{
		Subject: "$JS.API.CONSUMER.MSG.NEXT." + l.stream + "." + l.config.Durable, Reply: reply, Data: req,
	})
	if err != nil {
		return err
	}
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	for got := 0; got < batch; {
		select {
		case <-l.stopped:
			return errPullOver
		case <-l.j.Closed():
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

// control handles a status message of the server. It reports whether the request has ended
// normally, or the error.
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
	return true, fmt.Errorf("the server reported %s %s", status, desc)
}

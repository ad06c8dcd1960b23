package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

// Change is one or more changes of a bucket.
type Change struct {
	Entries []Entry // in the order of their revisions
	// Reset means that the entries are the whole bucket, including deletions that are still
	// stored. Earlier changes are void.
	Reset bool
}

// BucketWatch follows a bucket.
type BucketWatch struct {
	worker *worker
	k      *Bucket
	handle func(Change)
	since  atomic.Pointer[time.Time] // nil while it does not follow
}

// Watch follows the bucket until Stop, or until the bus is closed. The handler first receives
// everything as one reset, and then each change in order. Whenever a change may be missing
// (the connection was lost, the server is silent, a message is missing, the bucket was
// created again), it receives everything again. It is not called while the bucket does not
// exist. It must not block for long.
func (k *Bucket) Watch(handler func(Change)) *BucketWatch {
	w := &BucketWatch{worker: k.j.newWorker("bucket " + k.name), k: k, handle: handler}
	leave := k.j.Join(w.kick, w.worker.drain)
	go w.run(leave)
	return w
}

// Since returns the time since which the watch follows without interruption; ok is false if
// it does not follow now, so that changes may be missing.
func (w *BucketWatch) Since() (at time.Time, ok bool) {
	if t := w.since.Load(); t != nil {
		return *t, true
	}
	return time.Time{}, false
}

// Stop ends the watch and waits until the handler has returned. A handler must
// not call it.
func (w *BucketWatch) Stop() { w.worker.stop() }

func (w *BucketWatch) kick() {
	w.since.Store(nil)
	w.worker.kick()
}

func (w *BucketWatch) run(leave func()) {
	defer close(w.worker.done)
	defer leave()
	defer w.since.Store(nil)
	said := time.Now()
	for {
		began := time.Now()
		err := w.follow()
		w.since.Store(nil)
		if errors.Is(err, errPullOver) {
			return
		}
		if time.Since(said) > 10*time.Second && !errors.Is(err, jetstream.ErrStreamNotFound) {
			w.k.j.log.Warn("cannot follow a bucket", "bucket", w.k.name, "error", err)
			said = time.Now()
		} else {
			w.k.j.log.Debug("following a bucket again", "bucket", w.k.name, "reason", err)
		}
		if w.worker.pause(healPause - time.Since(began)); w.worker.over() {
			return
		}
	}
}

// follow creates a separate consumer, reads the whole bucket and then its changes, until an
// error occurs.
func (w *BucketWatch) follow() error {
	if w.worker.over() {
		return errPullOver
	}
	j, stream := w.k.j, bucketStream(w.k.name)
	if !j.Conn().IsConnected() {
		return nats.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c, err := j.JetStream().CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true,
		InactiveThreshold: 5 * pullExpires,
	})
	if err != nil {
		return fmt.Errorf("following bucket %s: %w", w.k.name, err)
	}
	name := c.CachedInfo().Name
	defer func() { _ = j.ctl.Send(&nats.Msg{Subject: "$JS.API.CONSUMER.DELETE." + stream + "." + name}) }()
	s := &bucketSession{w: w}
	s.loop = &pullLoop{
		worker: w.worker, stream: stream, config: jetstream.ConsumerConfig{Durable: name}, handle: s.take,
	}
	if c.CachedInfo().NumPending == 0 {
		s.loaded()
	}
	return s.run()
}

// bucketSession is the state of one consumer.
type bucketSession struct {
	w    *BucketWatch
	loop *pullLoop
	next uint64  // the last of the consumer's sequences
	all  []Entry // until everything has arrived
	full bool
	err  error
}

func (s *bucketSession) run() error {
	j := s.w.k.j
	msgs, inbox := make(chan *nats.Msg, 2*pullBatch), j.Conn().NewInbox()
	sub, err := j.Conn().ChanSubscribe(inbox+".*", msgs)
	if err != nil {
		return errPullOver // only when the connection is closed for good
	}
	defer func() { _ = sub.Unsubscribe() }()
	for n := uint64(1); ; n++ {
		had := s.next
		err := s.loop.pull(msgs, inbox+"."+strconv.FormatUint(n, 36), pullBatch)
		switch {
		case s.err != nil:
			return s.err
		case err != nil:
			return err
		case !s.full && s.next == had:
			s.loaded() // the messages were deleted before they were delivered
		}
	}
}

// take handles one message of the consumer. A missing message ends the session.
func (s *bucketSession) take(m *nats.Msg, meta *nats.MsgMetadata) {
	if s.err != nil {
		return
	}
	if meta.Sequence.Consumer != s.next+1 {
		s.err = fmt.Errorf("following bucket %s: message %d follows %d", s.w.k.name, meta.Sequence.Consumer, s.next)
		s.w.kick()
		return
	}
	s.next++
	e := s.w.k.entry(bus.StoredMsg{
		Seq: meta.Sequence.Stream, Time: meta.Timestamp, Subject: m.Subject, Header: m.Header, Data: m.Data,
	})
	if s.full {
		s.w.handle(Change{Entries: []Entry{e}})
		return
	}
	s.all = append(s.all, e)
	if meta.NumPending == 0 {
		s.loaded()
	}
}

// loaded passes all entries received so far to the handler, as a reset.
func (s *bucketSession) loaded() {
	s.full = true
	s.w.handle(Change{Entries: s.all, Reset: true})
	s.all = nil
	now := time.Now()
	s.w.since.Store(&now)
}

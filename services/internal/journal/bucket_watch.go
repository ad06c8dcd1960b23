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

	"skandha.dev/pkg/subject"
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

// lookEvery is how often a watch asks for the end of its bucket, in case a notice was lost; lookLimit is how
// long it waits for the answer, and for its entries.
const (
	lookEvery = 2 * time.Second
	lookLimit = 1500 * time.Millisecond
	loadLimit = 30 * time.Second
)

// follow reads the whole bucket and then its changes, until an error occurs. The stream of a bucket publishes
// a notice of each change, without content ([subject.BucketChanges]); the entries are read by direct get. So
// it needs no consumer, and a notice that is lost or forged costs only a look.
func (w *BucketWatch) follow() error {
	if w.worker.over() {
		return errPullOver
	}
	select {
	case <-w.worker.kicked: // for the previous connection
	default:
	}
	j := w.k.j
	s := &bucketSession{w: w, lost: j.ctl.Lost(), noticed: make(chan struct{}, 1)}
	if !j.Conn().IsConnected() {
		return nats.ErrDisconnected
	}
	sub, err := j.Conn().Subscribe(subject.BucketChanges(w.k.name), s.notice)
	if err != nil {
		return errPullOver // only when the connection is closed for good
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := s.load(); err != nil {
		return err
	}
	return s.run()
}

// bucketSession follows a bucket over one connection.
type bucketSession struct {
	w       *BucketWatch
	lost    <-chan struct{}
	noticed chan struct{}
	newest  atomic.Uint64 // revision of the latest notice
	bucket  bucketState
	last    uint64 // revision up to which the handler has everything
}

// bucketState distinguishes a bucket from one that was created or restored later under its name.
type bucketState struct {
	created  time.Time
	restored string
	notices  bool // its stream announces changes
	last     uint64
}

// notice notes that the bucket has changed.
func (s *bucketSession) notice(m *nats.Msg) {
	if n, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err == nil {
		s.newest.Store(n)
	}
	select {
	case s.noticed <- struct{}{}:
	default:
	}
}

// state asks for the state of the bucket.
func (s *bucketSession) state() (st bucketState, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	stream, err := s.w.k.j.JetStream().Stream(ctx, bucketStream(s.w.k.name))
	if err != nil {
		return st, fmt.Errorf("following bucket %s: %w", s.w.k.name, err)
	}
	i := stream.CachedInfo()
	return bucketState{
		created: i.Created, restored: i.Config.Metadata[MetaRestored], notices: i.Config.RePublish != nil, last: i.State.LastSeq,
	}, nil
}

// load passes everything to the handler.
func (s *bucketSession) load() (err error) {
	if s.bucket, err = s.state(); err != nil {
		return err
	}
	if !s.bucket.notices {
		s.w.k.j.log.Warn("a bucket does not announce its changes, because its core is older; they are seen late",
			"bucket", s.w.k.name, "every", lookEvery)
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	var all []Entry
	for e, err := range s.w.k.After(ctx, 0) {
		if err != nil {
			return err
		}
		all, s.last = append(all, e), e.Revision
	}
	s.w.handle(Change{Entries: all, Reset: true})
	now := time.Now()
	s.w.since.Store(&now)
	return nil
}

func (s *bucketSession) run() error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-s.w.worker.stopped:
			return errPullOver
		case <-s.w.k.j.Closed():
			return errPullOver
		case <-s.w.worker.kicked:
			return errPullKicked
		case <-s.lost:
			return nats.ErrDisconnected
		case <-s.noticed:
			if err := s.catchUp(s.newest.Load()); err != nil {
				return err
			}
		case <-look.C:
			if err := s.look(); err != nil {
				return err
			}
		}
	}
}

// look finds changes whose notice was lost, and another bucket under the name.
func (s *bucketSession) look() error {
	is, err := s.state()
	if err != nil {
		return err
	}
	was := s.bucket
	s.bucket = is
	switch {
	case !is.created.Equal(was.created) || is.restored != was.restored || is.last < s.last:
		return fmt.Errorf("following bucket %s: it was created again", s.w.k.name)
	case is.last > s.last && is.last != was.last:
		return s.catchUp(is.last)
	}
	return nil
}

// catchUp passes on what has changed, at least up to a revision.
func (s *bucketSession) catchUp(upTo uint64) error {
	if upTo <= s.last {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	for e, err := range s.w.k.matching(ctx, ">", s.last, upTo) {
		if err != nil {
			return err
		}
		s.last = e.Revision
		s.w.handle(Change{Entries: []Entry{e}})
	}
	return nil
}

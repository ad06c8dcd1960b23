package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// StorageFault is the reason why the log cannot store anything now. It is an error: use
// errors.As to find it in the error of a message that was not stored because of it.
type StorageFault struct {
	Reason string    `json:"reason"` // the server's own cause, and what to do
	Since  time.Time `json:"since"`

	missing bool // there is no stream
	lost    bool // most of its servers are gone
}

// Error implements error.
func (f *StorageFault) Error() string { return "the bus cannot store: " + f.Reason }

// What to do about a fault. nats-server keeps the first write error of a stream, and
// then neither stores nor answers until it is restarted.
const (
	adviceRestart = "fix that where nats-server stores its streams; `skandha up` then continues by itself, " +
		"any other nats-server must be restarted (docker compose restart nats, systemctl restart nats-server)"
	adviceLimit = "raise the limit or remove data; it then continues by itself"
)

// The intervals of the watch over a log that cannot store.
const (
	storagePause  = time.Second      // between two questions
	storageWait   = 2 * time.Second  // for an answer
	storageSilent = 10 * time.Second // without any acknowledgement, while connected, is a fault
)

// maxProbe is the longest text that an input may have.
const maxProbe = 256 << 10

// storage is what this connection knows of the log's ability to store. While messages
// are acknowledged it costs nothing. After one is refused for lack of space, or not
// answered, a single goroutine asks until one is acknowledged again.
type storage struct {
	acks    atomic.Uint64 // messages that were acknowledged
	changed chan struct{} // gets a value when a fault begins or ends

	mu      sync.Mutex
	fault   *StorageFault
	suspect time.Time // time of the first unanswered message; zero if none
	running bool
	size    int  // of the refused message; probes are as large
	denied  bool // the credentials do not allow asking for the cause
	blind   bool // they do not allow asking for the stream either
}

// StorageFault returns why the log cannot store now, as far as this process or a core knows;
// nil if no fault is known. The first call subscribes to the cores' beacons.
func (b *Bus) StorageFault() *StorageFault {
	// A core's report takes precedence, so that all processes report the same.
	if f := b.beacons.storageFault(b); f != nil {
		return f
	}
	return b.SeenStorageFault()
}

// SeenStorageFault is like [Bus.StorageFault], but ignores the reports of cores.
func (b *Bus) SeenStorageFault() *StorageFault {
	b.storage.mu.Lock()
	defer b.storage.mu.Unlock()
	return b.storage.fault
}

// observe sees the outcome of every message for the log.
func (b *Bus) observe(p *Pending) {
	if p.msg.Header.Get(jetstream.ExpectedStreamHeader) != StreamSessions {
		return
	}
	var f *StorageFault
	switch {
	case p.err == nil:
		b.storage.acks.Add(1)
		b.storageWorks()
	case errors.As(p.err, &f):
		b.storageFails(f, len(p.msg.Data))
	case errors.Is(p.err, nats.ErrNoResponders), p.unanswered():
		b.suspectStorage()
	}
}

// unanswered reports whether the server had the time and the connection to answer, and
// did not.
func (p *Pending) unanswered() bool {
	select {
	case <-p.lost:
		return false
	default:
	}
	return errors.Is(p.err, ErrAmbiguous) && time.Since(p.since) > attemptWait/4
}

func (b *Bus) storageWorks() {
	s := &b.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		b.log.Info("the bus stores again", "after", time.Since(s.fault.Since).Round(time.Millisecond))
		s.notify()
	}
	s.fault, s.suspect, s.size = nil, time.Time{}, 0
}

func (b *Bus) storageFails(f *StorageFault, size int) {
	s := &b.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = max(s.size, size)
	switch {
	case s.fault == nil:
		b.log.Error("the bus cannot store", "reason", f.Reason)
		s.fault = &StorageFault{Reason: f.Reason, Since: time.Now().UTC(), lost: f.lost}
		s.notify()
	case s.fault.Reason != f.Reason:
		s.fault = &StorageFault{Reason: f.Reason, Since: s.fault.Since, lost: f.lost}
		s.notify()
	}
	b.watchStorage()
}

// notify wakes the reader of StorageChanged; the lock is held.
func (s *storage) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// StorageChanged gets a value when what [Bus.SeenStorageFault] returns has changed. It has one reader.
func (b *Bus) StorageChanged() <-chan struct{} { return b.storage.changed }

func (b *Bus) suspectStorage() {
	s := &b.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspect.IsZero() {
		s.suspect = time.Now()
	}
	b.watchStorage()
}

// watchStorage runs the watch if it does not run; the lock is held.
func (b *Bus) watchStorage() {
	if b.storage.running {
		return
	}
	b.storage.running = true
	go func() {
		pause := time.NewTicker(storagePause)
		defer pause.Stop()
		for b.lookAtStorage() {
			select {
			case <-pause.C:
			case <-b.closed:
				return
			}
		}
	}()
}

// lookAtStorage asks once; false ends the watch.
func (b *Bus) lookAtStorage() bool {
	s := &b.storage
	s.mu.Lock()
	if s.fault == nil && s.suspect.IsZero() {
		s.running = false
		s.mu.Unlock()
		return false
	}
	suspect, denied, size := s.suspect, s.denied, min(s.size, maxProbe)
	s.mu.Unlock()
	if !b.Connected() {
		return true // a lost connection is reported elsewhere
	}
	ctx, cancel := context.WithTimeout(context.Background(), storageWait)
	defer cancel()
	err, f := ErrDenied, (*StorageFault)(nil)
	switch {
	case !denied && b.cfg.diagnoses():
		err = b.writeError(ctx)
	case !b.cfg.party: // which hears no beacons
		if f = b.beacons.storageFault(b); f != nil {
			err = f
		}
	}
	if errors.Is(err, ErrDenied) {
		err = b.lookForLog(ctx)
	}
	switch {
	case errors.As(err, &f):
		b.storageFails(f, 0)
		if f.missing {
			b.missing.Note()
			b.probeStorage(suspect, size) // it may be there again
		}
	case err == nil && b.SeenStorageFault() == nil:
		b.storageWorks() // the log was slow, and has no fault
	default:
		b.probeStorage(suspect, size)
	}
	return true
}

// probeStorage stores a message without content: only an acknowledgement proves that the log
// can store.
func (b *Bus) probeStorage(suspect time.Time, size int) {
	ctx, cancel := context.WithTimeout(context.Background(), storageWait)
	defer cancel()
	subj := subject.Probe(b.cfg.Instance)
	_, err := b.data.Store(ctx, &nats.Msg{Subject: subj, Data: make([]byte, size), Header: nats.Header{
		jetstream.ExpectedStreamHeader: []string{StreamSessions},
	}}).Wait(ctx) // observed like any other
	f := b.SeenStorageFault()
	switch {
	case errors.Is(err, ErrDenied):
		b.storageWorks() // unknown; the next message will show it
	case f != nil && f.lost: // which is why
	case errors.Is(err, nats.ErrNoResponders) && b.Connected() && !suspect.IsZero() && time.Since(suspect) > storageSilent:
		b.storageFails(&StorageFault{Reason: "no stream accepts the messages: the stream " + StreamSessions +
			" does not exist, or no server leads it; core creates a missing stream again"}, 0)
		b.strayed()
	case errors.Is(err, ErrAmbiguous) && b.Connected() && !suspect.IsZero() && time.Since(suspect) > storageSilent:
		b.storageFails(&StorageFault{Reason: fmt.Sprintf(
			"nats-server has acknowledged nothing for %s; see its log (\"write error\", \"JetStream\"); %s",
			storageSilent, adviceRestart)}, 0)
		b.strayed()
	}
}

// strayed tries another server, every ten seconds while there is no acknowledgement.
func (b *Bus) strayed() {
	b.storage.mu.Lock()
	b.storage.suspect = time.Now()
	b.storage.mu.Unlock()
	b.tryElsewhere("the log does not answer")
}

// diagnoses reports whether the credentials may allow asking for the cause.
func (c *Config) diagnoses() bool {
	return c.account == "" || c.Credentials != nil && c.Credentials.Diagnoses
}

// WhyNotStored is the subject of the request that asks the server why the log does not store.
const WhyNotStored = "$JS.API.STREAM.MSG.DELETE." + StreamSessions

// writeError asks the server why it does not answer, by a request to delete a message
// that cannot exist. A stream with a write error answers with that error; any other
// does nothing. nil means that the stream has no write error.
func (b *Bus) writeError(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"seq": uint64(math.MaxUint64), "no_erase": true})
	if err != nil {
		return err
	}
	got := make(chan *nats.Msg, 1)
	n, reply := b.data.inbox.ask(WhyNotStored, func(m *nats.Msg) {
		select {
		case got <- m:
		default: // only the first answer counts
		}
	})
	defer b.data.inbox.forget(n)
	if err := b.data.Send(&nats.Msg{Subject: WhyNotStored, Reply: reply, Data: body}); err != nil {
		return err
	}
	select {
	case m := <-got:
		return b.readWriteError(m)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookForLog asks whether there is a log, without the right to ask for its write error.
// The error is a [StorageFault] if there is none, else [ErrDenied]: the cause is unknown.
func (b *Bus) lookForLog(ctx context.Context) error {
	s := &b.storage
	s.mu.Lock()
	blind := s.blind
	s.mu.Unlock()
	if blind || b.cfg.party {
		return ErrDenied
	}
	_, err := b.LogInfo(ctx, "")
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return b.missing.log()
	case errors.Is(err, ErrDenied):
		s.mu.Lock()
		s.blind = true
		s.mu.Unlock()
	}
	return ErrDenied
}

func (b *Bus) readWriteError(m *nats.Msg) error {
	if err := deniedError(m); err != nil {
		b.storage.mu.Lock()
		b.storage.denied = true
		b.storage.mu.Unlock()
		return err
	}
	if noResponders(m) {
		return nats.ErrNoResponders
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	const errCodeSequenceNotFound, errCodeDeleteFailed = 10043, 10057
	switch e := answer.Error; {
	case e == nil, e.ErrorCode == errCodeSequenceNotFound:
		return nil
	case e.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return b.missing.log()
	case e.ErrorCode != errCodeDeleteFailed:
		return e // of the API, not of the store
	case isWriteError(e.Description):
		return writeFault(e.Description)
	}
	return nil // "EOF": there is no such message
}

// isWriteError distinguishes an operating system error, which names a file, from an error of
// the store itself.
func isWriteError(text string) bool {
	return strings.Contains(text, "no space left") || strings.Contains(text, ": ")
}

// writeFault is the fault of a stream that the server could not write. It omits the
// file's path: remote users should not learn paths of the machine.
func writeFault(text string) *StorageFault {
	cause := text
	if i := strings.LastIndex(text, ": "); i >= 0 {
		cause = text[i+2:]
	}
	return &StorageFault{Reason: cause + "; " + adviceRestart}
}

// limitFault is the fault behind a refusal; nil if the refusal concerns only that
// message.
func limitFault(e *jetstream.APIError) *StorageFault {
	switch {
	case StreamFull(e):
		return &StorageFault{Reason: "the stream " +
			StreamSessions + " is full (" + e.Description + "); " + adviceLimit}
	case ServerFull(e):
		return &StorageFault{Reason: "nats-server is full (" + e.Description +
			", jetstream.max_file_store); " + adviceLimit}
	}
	return nil
}

// StreamFull reports whether a stream's own limit refused the message.
func StreamFull(e *jetstream.APIError) bool {
	return strings.Contains(e.Description, "maximum bytes exceeded") ||
		strings.Contains(e.Description, "maximum messages exceeded")
}

// ServerFull reports whether the storage of the server or of the account did.
func ServerFull(e *jetstream.APIError) bool {
	return e.ErrorCode == errCodeResources || e.ErrorCode == ErrCodeNoStorage || e.ErrorCode == ErrCodeAccountLimit
}

// Errors of the server: JSInsufficientResourcesErr, JSStorageResourcesExceededErr and
// JSAccountResourcesExceededErr.
const (
	errCodeResources    = 10023
	ErrCodeNoStorage    = 10047
	ErrCodeAccountLimit = 10002
)

// Missing is what a [Bus] knows of streams that do not exist.
type Missing struct {
	hint chan struct{} // gets a value when a stream seems to be missing

	mu      sync.Mutex
	failure error // of the latest attempt to create a stream again
}

// Note notes that a stream seems to be missing.
func (m *Missing) Note() {
	select {
	case m.hint <- struct{}{}:
	default: // it is known already
	}
}

// Noted gets a value when a stream seems to be missing.
func (m *Missing) Noted() <-chan struct{} { return m.hint }

// Failed sets the outcome of the latest attempt to create a stream again.
func (m *Missing) Failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
}

// LogMissing reports the fault that the log's stream does not exist.
func (b *Bus) LogMissing() { b.storageFails(b.missing.log(), 0) }

// log is the fault of a log whose stream was deleted, or that a server with an
// empty directory does not have.
func (m *Missing) log() *StorageFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &StorageFault{Reason: "the stream " + StreamSessions + " does not exist; core creates it again", missing: true}
	if err := m.failure; err != nil {
		f.Reason += ", which failed: " + err.Error()
	}
	return f
}

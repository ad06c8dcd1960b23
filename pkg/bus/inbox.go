package bus

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2" // its top-level functions are ChaCha8, seeded by the system
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// table is what waits for answers, by number. The numbers are random, so that
// nobody can have an answer sent to someone else's question by guessing.
type table[V any] struct {
	mu   sync.Mutex
	open map[uint64]V
}

func newTable[V any]() *table[V] { return &table[V]{open: map[uint64]V{}} }

func (t *table[V]) add(v V) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		n := rand.Uint64()
		if _, taken := t.open[n]; !taken {
			t.open[n] = v
			return n
		}
	}
}

func (t *table[V]) get(n uint64) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.open[n]
	return v, ok
}

func (t *table[V]) remove(n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, n)
}

// all is what waits now.
func (t *table[V]) all() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.open))
}

func (t *table[V]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// inbox takes the server's own answers: acknowledgements and stored messages.
// One subscription for the life of the connection saves a SUB and an UNSUB per
// request, and unlike the client's request call it takes several answers to one
// request and does not block the one who asked. Its functions run on the
// connection's goroutine and must not block.
type inbox struct {
	prefix string
	*table[question]
}

// question is what was published on a subject and what is to be called with every answer.
type question struct {
	subj string
	f    func(*nats.Msg)
}

func newInbox(nc *nats.Conn) (*inbox, error) {
	in := &inbox{prefix: nc.NewInbox() + ".", table: newTable[question]()}
	sub, err := nc.Subscribe(in.prefix+"*", in.dispatch)
	if err != nil {
		return nil, fmt.Errorf("subscribing to %s*: %w", in.prefix, err)
	}
	// What arrives is bounded by what was asked for.
	return in, sub.SetPendingLimits(-1, -1)
}

func (in *inbox) dispatch(m *nats.Msg) {
	n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, in.prefix), 36, 64)
	if err != nil {
		return
	}
	if q, ok := in.get(n); ok {
		q.f(m)
	}
}

// ask opens a place for answers; forget closes it.
func (in *inbox) ask(subj string, f func(*nats.Msg)) (n uint64, reply string) {
	n = in.add(question{subj, f})
	return n, in.prefix + strconv.FormatUint(n, 36)
}

func (in *inbox) forget(n uint64) { in.remove(n) }

// statusDenied is a status of our own: the server does not let us publish this.
const statusDenied = "403"

// denied tells whoever waits for an answer to what was published on the subject
// that the server has thrown it away. The server says so on the side, where it
// would only be logged.
func (b *Bus) denied(subj string) {
	m := &nats.Msg{Header: nats.Header{"Status": {statusDenied}}}
	for _, l := range []*link{b.ctl, b.data} {
		l.denied(subj, m)
	}
	for _, p := range b.allParts() {
		if c, ok := p.(*Caller); ok {
			c.denied(subj, m)
		}
	}
}

func (l *link) denied(subj string, m *nats.Msg) {
	if l.inbox == nil {
		return // it is still being opened: no question is open
	}
	for _, q := range l.inbox.all() {
		if q.subj == subj {
			q.f(m)
		}
	}
}

// deniedSubject finds the subject in the server's words, Permissions Violation
// for Publish to "x".
func deniedSubject(err error) (subj string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, ok := strings.Cut(err.Error(), `Publish to "`)
	if !ok {
		return "", false
	}
	subj, _, ok = strings.Cut(rest, `"`)
	return subj, ok
}

// deniedError is the error that a message made by denied stands for; nil when it is another.
func deniedError(m *nats.Msg) error {
	if len(m.Data) != 0 || m.Header.Get("Status") != statusDenied || len(m.Header[jetstream.SequenceHeader]) != 0 {
		return nil
	}
	return Errorf(CodeDenied, "the credentials do not allow it")
}

// noResponders reports whether the server says that nobody listens. A stored
// message may say "Status: 503" too, but it has a sequence.
func noResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503" && len(m.Header[jetstream.SequenceHeader]) == 0
}

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

// pending holds the requests that wait for answers, by number. The numbers are random, so
// that nobody can direct an answer to another caller's request by guessing.
type pending[V any] struct {
	mu   sync.Mutex
	open map[uint64]V
}

func newPending[V any]() *pending[V] { return &pending[V]{open: map[uint64]V{}} }

func (p *pending[V]) add(v V) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n := rand.Uint64()
		if _, taken := p.open[n]; !taken {
			p.open[n] = v
			return n
		}
	}
}

func (p *pending[V]) get(n uint64) (V, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.open[n]
	return v, ok
}

func (p *pending[V]) remove(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, n)
}

// all returns the requests that wait now.
func (p *pending[V]) all() []V {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.open))
}

func (p *pending[V]) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// inbox receives answers of the server: acknowledgements and stored messages. One
// subscription for the life of the connection saves a SUB and an UNSUB per request. Unlike
// the client's request call, it accepts several answers to one request and does not block
// the caller. Its functions run on the connection's goroutine and must not block.
type inbox struct {
	prefix string
	*pending[question]
}

// question is a request on a subject, and the function that is called with every answer.
type question struct {
	subj string
	f    func(*nats.Msg)
}

func newInbox(nc *nats.Conn) (*inbox, error) {
	in := &inbox{prefix: nc.NewInbox() + ".", pending: newPending[question]()}
	sub, err := nc.Subscribe(in.prefix+"*", in.dispatch)
	if err != nil {
		return nil, fmt.Errorf("subscribing to %s*: %w", in.prefix, err)
	}
	// The requests limit what arrives.
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

// ask registers a function for the answers to a request; forget removes it.
func (in *inbox) ask(subj string, f func(*nats.Msg)) (n uint64, reply string) {
	n = in.add(question{subj, f})
	return n, in.prefix + strconv.FormatUint(n, 36)
}

func (in *inbox) forget(n uint64) { in.remove(n) }

// statusDenied is a status of this package: the server did not allow the publication.
const statusDenied = "403"

// denied notifies the callers that wait for answers to messages on the subject that the
// server has discarded them. The server reports it asynchronously, as an error that would
// only be logged.
func (b *Bus) denied(subj string) {
	m := &nats.Msg{Header: nats.Header{"Status": {statusDenied}}}
	for _, l := range []*Link{b.ctl, b.data} {
		l.denied(subj, m)
	}
	for _, p := range b.allParts() {
		if c, ok := p.(*Caller); ok {
			c.denied(subj, m)
		}
	}
}

func (l *Link) denied(subj string, m *nats.Msg) {
	if l.inbox == nil {
		return // the link is still being opened: nothing waits
	}
	for _, q := range l.inbox.all() {
		if q.subj == subj {
			q.f(m)
		}
	}
}

// deniedSubject finds the subject in the server's error, Permissions Violation for Publish to
// "x".
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

// deniedError returns the error for a message that denied has made, else nil.
func deniedError(m *nats.Msg) error {
	if len(m.Data) != 0 || m.Header.Get("Status") != statusDenied || len(m.Header[jetstream.SequenceHeader]) != 0 {
		return nil
	}
	return Errorf(CodeDenied, "not allowed by the credentials")
}

// noResponders reports whether the server's answer is that the subject has no subscribers. A
// stored message may contain "Status: 503" too, but it has a sequence.
func noResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503" && len(m.Header[jetstream.SequenceHeader]) == 0
}

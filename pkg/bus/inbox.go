package bus

import (
	"fmt"
	"math/rand/v2" // its top-level functions are ChaCha8, seeded by the system
	"net/url"
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
	*table[func(*nats.Msg)]
}

func newInbox(nc *nats.Conn) (*inbox, error) {
	in := &inbox{prefix: nc.NewInbox() + ".", table: newTable[func(*nats.Msg)]()}
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
	if f, ok := in.get(n); ok {
		f(m)
	}
}

// ask opens a place for answers; forget closes it.
func (in *inbox) ask(f func(*nats.Msg)) (n uint64, reply string) {
	n = in.add(f)
	return n, in.prefix + strconv.FormatUint(n, 36)
}

func (in *inbox) forget(n uint64) { in.remove(n) }

// noResponders reports whether the server says that nobody listens. A stored
// message may say "Status: 503" too, but it has a sequence.
func noResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503" && len(m.Header[jetstream.SequenceHeader]) == 0
}

// redactURL hides the passwords and tokens of a list of URLs.
func redactURL(list string) string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		u, err := url.Parse(strings.TrimSpace(p))
		if err != nil {
			parts[i] = "(not a URL)"
			continue
		}
		if _, has := u.User.Password(); u.User != nil && !has {
			u.User = url.User("xxxxx") // a bare user part is a token
		}
		parts[i] = u.Redacted()
	}
	return strings.Join(parts, ",")
}

package bus

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A client may have the server send its answer to any subject: it is as if the server had published there what
// the client once stored. Such a message names the stream that it comes from, in headers that the client cannot
// remove. A delivery of a consumer names it in its reply subject.

// IsAnswer reports whether a message is the server's answer to a client: one that it has taken out of a stream, an
// acknowledgement, or a page of its API.
func IsAnswer(h nats.Header, body []byte) bool {
	if len(h[jetstream.StreamHeader]) > 0 && len(h[jetstream.SequenceHeader]) > 0 {
		return true
	}
	return len(h) == 0 && serverBody.Match(body)
}

// serverBody is how the server's own answers begin. Nothing of Skandha's contract does: its error codes are words.
var serverBody = regexp.MustCompile(`^\{"(stream":"|error":\{"code":[0-9]|type":"io\.nats\.jetstream\.api\.)`)

// Foreign reports whether a message on a subject of Skandha is an answer of the server, so that nobody with the
// right to publish there has published it. It must be ignored. It is counted, and logged now and then.
func (b *Bus) Foreign(m *nats.Msg) bool {
	if !strings.HasPrefix(m.Reply, "$JS.ACK.") && !IsAnswer(m.Header, m.Data) {
		return false
	}
	if n, say := b.foreign.note(); say {
		b.log.Warn("dropping a message that the server has sent for somebody else", "subject", m.Subject,
			"stream", m.Header.Get(jetstream.StreamHeader), "dropped", n)
	}
	return true
}

// Subscribe calls f for each message on a subject that somebody has published there; see [Bus.Foreign].
// Subscriptions with the same queue share the messages; with an empty queue, each receives all of them.
func (b *Bus) Subscribe(subj, queue string, f func(*nats.Msg)) (*nats.Subscription, error) {
	published := func(m *nats.Msg) {
		if !b.Foreign(m) {
			f(m)
		}
	}
	if queue == "" {
		return b.ctl.nc.Subscribe(subj, published)
	}
	return b.ctl.nc.QueueSubscribe(subj, queue, published)
}

// ForeignDropped returns how many messages [Bus.Foreign] has found.
func (b *Bus) ForeignDropped() uint64 {
	b.foreign.mu.Lock()
	defer b.foreign.mu.Unlock()
	return b.foreign.n
}

// tally counts what must be logged, but not each time.
type tally struct {
	mu   sync.Mutex
	n    uint64
	said time.Time
}

const tallyPause = time.Minute

func (t *tally) note() (n uint64, say bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if say = time.Since(t.said) > tallyPause; say {
		t.said = time.Now()
	}
	return t.n, say
}

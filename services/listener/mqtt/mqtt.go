package mqtt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/feed"
	"skandha.dev/services/listener/mapping"
)

// The times of connecting.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = time.Minute
	steady     = 10 * time.Second // a connection that lasted longer is tried again at once
	closeWait  = 500 * time.Millisecond
)

// again is how many messages at the beginning of a kept session the broker may have delivered
// before without marking them.
const again = 128

// Deps are a listener's dependencies.
type Deps struct {
	Bus     *journal.Journal
	Brokers mqttclient.Config
	Logger  *slog.Logger     // default slog.Default
	Now     func() time.Time // default time.Now
	Stats   *feed.Stats      // may be nil
}

// Listener is the listener that subscribes to a broker.
type Listener struct {
	name   subject.Writer
	cfg    Config
	broker mqttclient.Broker
	bus    *journal.Journal
	feed   *feed.Feed
	rules  map[string]Topic // by name
	own    topics
	log    *slog.Logger
	now    func() time.Time
	stats  *feed.Stats

	health     contract.Condition
	subscribed atomic.Bool        // at least once
	end, quit  context.CancelFunc // of the connection; of receiving
	ended      sync.WaitGroup
}

var _ contract.HealthReporter = (*Listener)(nil)

// New returns a listener; an error of the configuration names its field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := cfg.Validate(name); err != nil {
		return nil, err
	}
	broker, err := cfg.broker(deps.Brokers)
	if err != nil {
		return nil, err
	}
	cfg.ClientID = cmp.Or(cfg.ClientID, "skandha-"+string(name))
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Listener{
		name: name, cfg: cfg, broker: bounds.Filled(broker), bus: deps.Bus, rules: maps.Clone(cfg.Topics), own: topicsOf(name),
		log: deps.Logger.With("listener", string(name)), now: deps.Now, stats: cmp.Or(deps.Stats, &feed.Stats{}),
		end: func() {}, quit: func() {},
	}
	if l.rules == nil {
		l.rules = map[string]Topic{}
	}
	if h := cfg.HomeAssistant; h != nil {
		l.rules[discoveryRule] = h.withDefaults().rule(l.own)
	}
	mappings := map[string]mapping.Config{}
	for rule, t := range l.rules {
		mappings[rule] = t.Config
	}
	source := mapping.Source{Kind: "mqtt", Listener: name, ByName: true}
	l.feed, err = feed.New(source, mappings, feed.Deps{Bus: deps.Bus, Logger: deps.Logger, Now: deps.Now, Stats: l.stats})
	if err != nil {
		return nil, fmt.Errorf("topics.%w", err)
	}
	l.health.Set(contract.StateDown, "not connected yet")
	return l, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Health implements [contract.HealthReporter].
func (l *Listener) Health() contract.Health {
	return contract.Worse(l.health.Health(), l.feed.Health())
}

// OnStart implements [contract.Listener].
func (l *Listener) OnStart(ctx context.Context, e contract.Emitter) error {
	if err := l.feed.Start(ctx, e); err != nil {
		return err
	}
	var work, wait context.Context
	work, l.end = context.WithCancel(context.WithoutCancel(ctx))
	wait, l.quit = context.WithCancel(work)
	l.ended.Go(func() { l.run(wait, work) })
	return nil
}

// OnStop implements [contract.Listener]. With qos 1, what was not done stays at the broker.
func (l *Listener) OnStop(ctx context.Context) error {
	l.quit()
	err := l.feed.Stop(ctx)
	l.end()
	l.ended.Wait()
	return err
}

// run keeps a connection until wait ends; what was received can be acknowledged until work ends.
func (l *Listener) run(wait, work context.Context) {
	next := firstPause
	for wait.Err() == nil {
		began := time.Now()
		err := l.session(wait, work)
		if wait.Err() != nil {
			return
		}
		lasted := time.Since(began)
		why := err.Error()
		if lasted < steady && l.health.Health().State == contract.StateOK {
			why += "; perhaps another client has the client id " + l.cfg.ClientID
		}
		if l.health.Set(contract.StateDown, why) {
			l.log.Warn("not connected; retrying", "broker", l.broker.URL, "error", why)
		}
		if lasted > steady {
			next = firstPause
		}
		pause(wait, next/2+rand.N(next)) //nolint:gosec // so that clients of one broker do not come at once
		next = min(2*next, maxPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// session connects, subscribes and receives until the connection is lost or wait ends.
func (l *Listener) session(wait, work context.Context) error {
	r := &receiver{l: l, wait: wait, born: make(chan struct{}, 1)}
	r.kept.Store(true) // before it is known, only a kept session has messages
	opts := mqttclient.Options{ClientID: l.cfg.ClientID, Receive: r.receive}
	if l.cfg.HomeAssistant != nil {
		opts.Will = &mqttclient.Message{Topic: l.own.status, Payload: []byte("offline"), QoS: 1, Retain: true}
	}
	conn, err := l.broker.Dial(wait, opts)
	if err != nil {
		return err
	}
	defer conn.Close(closeWait)
	r.kept.Store(conn.Kept())
	if err := conn.Subscribe(wait, l.filters()); err != nil {
		return err
	}
	l.log.Info("connected", "broker", l.broker.URL, "session_kept", conn.Kept())
	l.subscribed.Store(true)
	l.health.Set(contract.StateOK, "")
	if h := l.cfg.HomeAssistant; h != nil {
		d := device{HomeAssistant: h.withDefaults(), listener: l.name, own: l.own, bus: l.bus, conn: conn, log: l.log}
		leave := d.start(wait, r.born)
		defer leave()
	}
	select {
	case <-conn.Done():
		return fmt.Errorf("connection lost: %w", conn.Err())
	case <-wait.Done():
	}
	select { // what was taken is acknowledged
	case <-conn.Done():
	case <-work.Done():
	}
	return nil
}

// filters returns what to subscribe to.
func (l *Listener) filters() map[string]byte {
	qos := byte(1)
	if l.cfg.QoS != nil && *l.cfg.QoS == 0 {
		qos = 0
	}
	out := map[string]byte{}
	for _, t := range l.rules {
		out[t.Topic] = qos
	}
	if h := l.cfg.HomeAssistant; h != nil {
		out[h.withDefaults().Prefix+"/status"] = 0
	}
	return out
}

// receiver takes the messages of one connection.
type receiver struct {
	l        *Listener
	wait     context.Context //nolint:containedctx // of the connection, for the library's callback
	kept     atomic.Bool
	received int
	born     chan struct{} // receives when Home Assistant has started
}

// receive takes one message. It returns when there is space for it.
func (r *receiver) receive(m mqttclient.Message) {
	l := r.l
	r.received++
	rules := l.match(m)
	switch {
	case l.discovery(m.Topic) && strings.HasSuffix(m.Topic, "/status"):
		if string(m.Payload) == "online" {
			select {
			case r.born <- struct{}{}:
			default:
			}
		}
		m.Ack()
		return
	case len(rules) == 0:
		m.Ack()
		return
	case int64(len(m.Payload)) > l.broker.MaxPayload:
		l.stats.Unreadable.Add(1)
		l.log.Debug("a message was dropped: it is larger than max_payload", "topic", m.Topic)
		m.Ack()
		return
	}
	it := feed.Item{Rules: rules, Done: m.Ack, Reading: mapping.Reading{
		Name: m.Topic, Data: m.Payload, Time: l.now(), Retained: m.Retain,
	}}
	if m.QoS == 0 {
		l.feed.Offer(it)
		return
	}
	it.Reading.ID, it.Reading.Again = identity(m), m.Duplicate || r.kept.Load() && r.received <= again
	_ = l.feed.Put(r.wait, it) // it fails when the listener stops; then the broker keeps the message
}

// match returns the rules for a message, in order.
func (l *Listener) match(m mqttclient.Message) (rules []string) {
	if !strings.HasPrefix(m.Topic, l.own.base) || m.Topic == l.own.say {
		for rule, t := range l.rules {
			if mqttclient.Matches(t.Topic, m.Topic) && (t.Retained || !m.Retain) && !l.discovery(m.Topic) {
				rules = append(rules, rule)
			}
		}
	}
	return slices.Sorted(slices.Values(rules))
}

// discovery reports whether a topic is one of the Home Assistant discovery.
func (l *Listener) discovery(topic string) bool {
	h := l.cfg.HomeAssistant
	return h != nil && strings.HasPrefix(topic, h.withDefaults().Prefix+"/")
}

// identity is what a message that is delivered again has in common with its first delivery.
func identity(m mqttclient.Message) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(int(m.ID)) + "\x00" + m.Topic + "\x00" + string(m.Payload)))
	return hex.EncodeToString(sum[:8])
}

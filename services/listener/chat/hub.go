package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/listener/contract"
)

const (
	waiting    = 256             // messages that Take accepts before the earlier ones are stored
	maxSenders = 4096            // whose rate is known
	askWait    = 3 * time.Second // for core
	askPause   = 50 * time.Millisecond
	emitWait   = 2 * time.Minute // for the log, per message
)

// Stats counts messages from chat networks.
type Stats struct {
	Ignored  atomic.Int64 // from accounts that may not talk, or from programs
	Limited  atomic.Int64 // beyond the rate of one account, or of all
	Answered atomic.Int64 // answers to requests for approval
}

// Counters returns the counts by metric name.
func (s *Stats) Counters(prefix string) map[string]int64 {
	return map[string]int64{
		prefix + "_ignored": s.Ignored.Load(), prefix + "_limited": s.Limited.Load(), prefix + "_answers": s.Answered.Load(),
	}
}

// Deps are a gateway's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *Stats           // may be nil
	// StateDir is where a gateway records, on this machine, how far its messages got; see
	// effect.Attempts. Empty: nowhere.
	StateDir string
	// Progress reports how far a request for approval is; default: ask core.
	Progress func(ctx context.Context, ref subject.Ref, confirmation string) (client.Progress, error)
}

// Message is a message of a person in a chat network.
type Message struct {
	Room    string // canonical name; empty: a direct message
	Thread  string // of the room; empty: none
	Account string // as the server has authenticated it; empty: it has not
	Name    string // that people see
	Text    string
	ID      string // of the network; empty: it has none
	ReplyTo string // where the answer goes, in the gateway's words
	Program bool   // the network says that a program sent it
	// Addressed: the message names the agent, or is a reply to it. The text is without the name.
	Addressed bool
	Files     []provider.File
}

// Place is a conversation: a room, a thread of it, or one with a person.
type Place struct {
	Room    string // empty: a conversation with Account
	Thread  string
	Account string // only if there is no room
}

// Place returns where the message was sent.
func (m Message) Place() Place {
	if m.Room != "" {
		return Place{Room: m.Room, Thread: m.Thread}
	}
	return Place{Account: m.Account}
}

// Hub decides what becomes of messages, for one gateway.
type Hub struct {
	name     subject.Writer
	network  string
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	stats    *Stats
	bus      *journal.Journal
	bucket   *journal.Bucket
	progress func(context.Context, subject.Ref, string) (client.Progress, error)
	senders  *lru.Cache[string, *sender]
	is       contract.Condition

	started  atomic.Bool
	emitter  contract.Emitter
	answerer contract.Answerer
	inFlight contract.InFlight
	queue    chan queued
	life     context.Context //nolint:containedctx // of the gateway: accepted messages end with it
	end      context.CancelFunc
}

// sender is how much one account has sent.
type sender struct {
	limit  *rate.Limiter
	notice *rate.Limiter // of explanations
}

// New returns the hub of a gateway. The names in cfg are in their canonical form; see
// [Config.Canonical].
func New(name subject.Writer, network string, cfg Config, deps Deps) (*Hub, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if deps.Bus == nil {
		return nil, errors.New("configuring a chat gateway: Bus is required")
	}
	senders, err := lru.New[string, *sender](maxSenders)
	if err != nil {
		return nil, err
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	deps.Stats = cmp.Or(deps.Stats, &Stats{})
	if deps.Now == nil {
		deps.Now = time.Now
	}
	h := &Hub{
		name: name, network: network, cfg: cfg.WithDefaults(), log: deps.Logger.With("listener", string(name)), now: deps.Now,
		stats: deps.Stats, bus: deps.Bus, bucket: deps.Bus.Bucket(journal.BucketGateways), progress: deps.Progress, senders: senders,
		queue: make(chan queued, waiting),
	}
	if h.progress == nil {
		h.progress = h.askCore
	}
	h.life, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Name returns the listener's name.
func (h *Hub) Name() subject.Writer { return h.name }

// Log returns the gateway's logger.
func (h *Hub) Log() *slog.Logger { return h.log }

// Life returns a context that ends when the gateway has stopped.
func (h *Hub) Life() context.Context { return h.life }

// Health implements [contract.HealthReporter].
func (h *Hub) Health() contract.Health { return h.is.Health() }

// Works records that the gateway is connected; troubles say what does not work all the same.
func (h *Hub) Works(troubles ...string) {
	state := contract.StateOK
	if len(troubles) > 0 {
		state = contract.StateDegraded
	}
	h.is.Set(state, strings.Join(troubles, "; "))
}

// Start lets Handle and Take accept messages. It fails the second time.
func (h *Hub) Start(e contract.Emitter) error {
	if !h.started.CompareAndSwap(false, true) {
		return fmt.Errorf("listener %s was already started", h.name)
	}
	answerer, ok := e.(contract.Answerer)
	if !ok {
		answerer = nobody{}
	}
	h.emitter, h.answerer = e, answerer
	h.is.Set(contract.StateDown, "not connected yet")
	h.inFlight.Open()
	go h.work()
	return nil
}

// nobody is an answerer for emitters that are none.
type nobody struct{}

// Confirm implements [contract.Answerer].
func (nobody) Confirm(context.Context, subject.Ref, event.Confirmation) (uint64, error) {
	return 0, fmt.Errorf("%w: this process stores no answers", contract.ErrRefused)
}

// Stop accepts nothing new and waits for what was accepted, as [contract.Listener] says.
func (h *Hub) Stop(ctx context.Context) error {
	defer h.end()
	if err := h.inFlight.Shut(ctx); err != nil {
		return fmt.Errorf("listener %s: %w", h.name, err)
	}
	return nil
}

// Handle decides about a message and returns once its input or answer is stored. The reply is what
// its sender is to read; empty: nothing. The error means that it may not be stored: it can be handled
// again, if it has an id.
func (h *Hub) Handle(ctx context.Context, m Message) (reply string, err error) {
	leave, ok := h.inFlight.Enter()
	if !ok {
		return "", fmt.Errorf("listener %s: %w: it has stopped", h.name, contract.ErrUnavailable)
	}
	defer leave()
	return h.handle(ctx, m)
}

func (h *Hub) handle(ctx context.Context, m Message) (string, error) {
	p, known := h.place(m.Room)
	if !known || m.Program && !h.cfg.named(m.Account) {
		h.stats.Ignored.Add(1)
		return "", nil
	}
	answer, isAnswer := ParseAnswer(m.Text)
	addressed := m.Addressed || m.Room == ""
	switch {
	case !isAnswer && p.mention && !addressed:
		return "", nil
	case !h.sender(m).limit.AllowN(h.now(), 1):
		h.stats.Limited.Add(1)
		return h.once(m, fmt.Sprintf("Too many messages: at most %d in a minute. This one was dropped.", h.cfg.PerMinute)), nil
	case isAnswer && (p.mayTalk(m.Account) || p.mayApprove(m.Account)):
		h.stats.Answered.Add(1)
		return h.decide(ctx, m.Place(), m.Account, p, answer)
	case !p.mayTalk(m.Account) && (h.cfg.Others != OthersData || isAnswer):
		h.stats.Ignored.Add(1)
		if !addressed {
			return "", nil
		}
		return h.once(m, stranger(m)), nil
	case strings.HasPrefix(m.Text, "/"):
		return "Commands are not available in chat; use the page or the terminal.", nil
	}
	return h.emit(ctx, m, p)
}

func stranger(m Message) string {
	if m.Account == "" {
		return "Your account is unknown here: log in to the network first, then try again."
	}
	return "You may not talk to this agent."
}

func (h *Hub) emit(ctx context.Context, m Message, p place) (string, error) {
	in := contract.Input{
		Agent: subject.Agent(h.cfg.Agent), Session: h.session(m.Place()), Text: m.Text, ID: h.inputID(m.ID),
		Source: h.source(m.Room), From: m.Account, ReplyTo: m.ReplyTo, Files: m.Files,
	}
	if !p.mayTalk(m.Account) {
		in.Origin = event.Origin("chat:" + h.network + "/" + cmp.Or(m.Account, "unknown"))
		if m.Account == "" && m.Room == "" {
			in.Session = h.session(Place{Account: "?" + m.Name})
		}
	}
	_, err := h.emitter.EmitInput(ctx, in)
	if errors.Is(err, contract.ErrInvalid) || errors.Is(err, contract.ErrRefused) {
		h.log.Warn("a message was not accepted", "room", m.Room, "id", in.ID, "error", err)
		return "Your message was not accepted: " + err.Error(), nil
	}
	return "", err
}

// source names where inputs come from, for people.
func (h *Hub) source(room string) string {
	if room == "" {
		return h.network + ":" + string(h.name)
	}
	return h.network + ":" + string(h.name) + " " + room
}

// inputID returns the id of an input, from that of the network's message.
func (h *Hub) inputID(id string) string {
	switch {
	case id == "":
		return submit.NewID()
	case contract.CheckID(id) != nil:
		return digest(id)
	}
	return id
}

// sender returns what is known of a message's sender. Accounts and names are apart, so that nobody
// uses up the rate of an account by its name.
func (h *Hub) sender(m Message) *sender {
	id := "account " + m.Account
	if m.Account == "" {
		id = "name " + m.Name
	}
	if s, ok := h.senders.Get(id); ok {
		return s
	}
	per := time.Minute / time.Duration(h.cfg.PerMinute)
	s := &sender{rate.NewLimiter(rate.Every(per), h.cfg.PerMinute), rate.NewLimiter(rate.Every(time.Minute), 1)}
	h.senders.Add(id, s)
	return s
}

// once returns the text, or nothing if the sender was notified within the last minute.
func (h *Hub) once(m Message, text string) string {
	if !h.sender(m).notice.AllowN(h.now(), 1) {
		return ""
	}
	return text
}

// askCore reports how far a request is.
func (h *Hub) askCore(ctx context.Context, ref subject.Ref, confirmation string) (client.Progress, error) {
	c, err := client.New(h.bus, h.name, h.log)
	if err != nil {
		return client.Progress{}, err
	}
	defer func() { _ = c.Close() }()
	return c.Progress(ctx, ref, confirmation)
}

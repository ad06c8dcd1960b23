// Package transporttest provides a backend in memory and a server for a handler, for tests
// of the UI bridge's transports: how they handle each answer of a backend. The real backend
// has its own tests.
package transporttest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// Backend keeps its sessions in memory.
type Backend struct {
	mu       sync.Mutex
	sessions map[subject.Ref]*session
	log      []any // Submission, Answer and Cancellation, in the order of arrival
	gate     chan struct{}
	fail     error
	methods  map[string]contract.Method
	feeds    int
}

type session struct {
	sent  []contract.Notification
	feeds map[*feed]struct{}
}

// New creates a backend with all methods that the bridge has. They return their caller and
// their parameters.
func New() *Backend {
	b := &Backend{sessions: map[subject.Ref]*session{}, methods: map[string]contract.Method{}}
	for name, right := range Methods() {
		b.Add(contract.Method{
			Name: name, Right: right,
			Call: func(_ context.Context, p contract.Principal, params json.RawMessage) (any, error) {
				return Called{name, p.Name, params}, nil
			},
		})
	}
	return b
}

// Called is the result of the methods of [New].
type Called struct {
	Method string          `json:"method"`
	By     string          `json:"by"`
	Params json.RawMessage `json:"params,omitempty"`
}

// Methods returns the methods that the bridge adds to the four that take inputs, and the
// rights they need.
func Methods() map[string]contract.Right {
	out := map[string]contract.Right{
		"pluginAction": contract.Administer, "switchListener": contract.Administer, "outboxAction": contract.Administer,
		"listAudit": contract.Administer, "listIdentities": contract.Administer, "revokeIdentity": contract.Administer,
		"addMemory": contract.Talk, "correctMemory": contract.Talk, "forgetMemory": contract.Talk,
	}
	for _, name := range []string{
		"listSessions", "getSession", "listTools", "listProviders", "listPlugins", "getHooks", "getStatus", "listTurns", "getTimeline",
		"listArtifacts", "listMemories", "searchMemories", "listListeners", "listOutbox",
	} {
		out[name] = contract.See
	}
	return out
}

// Add adds a method, or replaces it.
func (b *Backend) Add(m contract.Method) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]contract.Method{m.Name: m}
	for name, old := range b.methods {
		if name != m.Name {
			all[name] = old
		}
	}
	b.methods = all
}

// Methods implements [contract.Backend].
func (b *Backend) Methods() map[string]contract.Method {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.methods
}

// Hold keeps the bus from acknowledging until it is called again with false.
func (b *Backend) Hold(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gate != nil {
		close(b.gate)
		b.gate = nil
	}
	if yes {
		b.gate = make(chan struct{})
	}
}

// Fail makes all writes fail; nil ends that.
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// Log returns what was stored, in order.
func (b *Backend) Log() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

// Feeds returns the number of open feeds.
func (b *Backend) Feeds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.feeds
}

func (b *Backend) store(ctx context.Context, ref subject.Ref, v any) (contract.Receipt, error) {
	b.mu.Lock()
	gate, fail := b.gate, b.fail
	b.mu.Unlock()
	if fail != nil {
		return contract.Receipt{}, fail
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return contract.Receipt{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, v)
	return contract.Receipt{Agent: ref.Agent, Session: ref.Session, Sequence: uint64(len(b.log))}, nil
}

// Submit implements [contract.Backend].
func (b *Backend) Submit(ctx context.Context, p contract.Principal, in contract.Submission) (contract.Receipt, error) {
	if err := p.Require(contract.Talk, in.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	if in.Text == "" {
		return contract.Receipt{}, contract.Invalid("input", "empty; send some text")
	}
	r, err := b.store(ctx, in.Ref, in)
	r.ID, r.Turn = in.ID, "t"+strconv.FormatUint(r.Sequence, 10)
	return r, err
}

// Confirm implements [contract.Backend].
func (b *Backend) Confirm(ctx context.Context, p contract.Principal, a contract.Answer) (contract.Receipt, error) {
	if err := p.Require(contract.Approve, a.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	return b.store(ctx, a.Ref, a)
}

// Cancel implements [contract.Backend].
func (b *Backend) Cancel(ctx context.Context, p contract.Principal, c contract.Cancellation) (contract.Receipt, error) {
	if err := p.Require(contract.Talk, c.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	return b.store(ctx, c.Ref, c)
}

// Tell sends a notification with a place to all feeds of a session, and returns its id.
func (b *Backend) Tell(ref subject.Ref, method string, params any) string {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.session(ref)
	n := contract.Notification{ID: fmt.Sprintf("%d.0", len(s.sent)+1), Method: method, Params: raw}
	s.sent = append(s.sent, n)
	for f := range s.feeds {
		f.put(n)
	}
	return n.ID
}

// Say sends a message with a text.
func (b *Backend) Say(ref subject.Ref, text string) string {
	return b.Tell(ref, contract.OnNewMessage, contract.Message{
		About:     contract.About{Agent: ref.Agent, Session: ref.Session},
		UIMessage: event.UIMessage{Content: text, Format: event.Text},
	})
}

// Lossy sends a delta, which has no place.
func (b *Backend) Lossy(ref subject.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.session(ref).feeds {
		f.put(contract.Notification{Method: contract.OnDelta, Params: json.RawMessage(`{"agent":"main"}`)})
	}
}

// Break ends all feeds of a session with an error.
func (b *Backend) Break(ref subject.Ref, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.session(ref).feeds {
		f.fail(err)
	}
}

func (b *Backend) session(ref subject.Ref) *session {
	if b.sessions[ref] == nil {
		b.sessions[ref] = &session{feeds: map[*feed]struct{}{}}
	}
	return b.sessions[ref]
}

// Attach implements [contract.Backend].
func (b *Backend) Attach(ctx context.Context, p contract.Principal, a contract.Attachment) (contract.Feed, error) {
	if err := p.Require(contract.See, a.Ref.Agent); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.session(a.Ref)
	from := len(s.sent)
	if a.After != "" {
		n, _, _ := strings.Cut(a.After, ".")
		var err error
		if from, err = strconv.Atoi(n); err != nil || from > len(s.sent) {
			return nil, contract.Invalid("after", "unknown id")
		}
	}
	after := "0"
	if from > 0 {
		after = s.sent[from-1].ID
	}
	first, err := json.Marshal(contract.Attached{
		About: contract.About{Agent: a.Ref.Agent, Session: a.Ref.Session}, After: after, State: event.StateWaiting,
	})
	if err != nil {
		return nil, err
	}
	f := &feed{
		b: b, s: s, wake: make(chan struct{}, 1),
		queue: []contract.Notification{{Method: contract.OnAttached, Params: first}},
	}
	f.queue = append(f.queue, s.sent[from:]...)
	s.feeds[f] = struct{}{}
	b.feeds++
	f.stop = context.AfterFunc(ctx, func() { f.end(ctx.Err()) })
	return f, nil
}

// feed is guarded by its backend's lock.
type feed struct {
	b     *Backend
	s     *session
	wake  chan struct{}
	queue []contract.Notification
	err   error
	stop  func() bool
}

func (f *feed) put(n contract.Notification) {
	f.queue = append(f.queue, n)
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) fail(err error) {
	if f.err == nil {
		f.err, f.queue = err, nil
		delete(f.s.feeds, f)
		f.b.feeds--
		f.poke()
	}
}

func (f *feed) end(err error) {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	f.fail(err)
}

// Next implements [contract.Feed].
func (f *feed) Next(ctx context.Context) (contract.Notification, error) {
	for {
		f.b.mu.Lock()
		switch {
		case f.err != nil:
			defer f.b.mu.Unlock()
			return contract.Notification{}, f.err
		case len(f.queue) > 0:
			defer f.b.mu.Unlock()
			n := f.queue[0]
			f.queue = f.queue[1:]
			return n, nil
		}
		f.b.mu.Unlock()
		select {
		case <-f.wake:
		case <-ctx.Done():
			return contract.Notification{}, ctx.Err()
		}
	}
}

// Close implements [contract.Feed].
func (f *feed) Close() {
	f.stop()
	f.end(context.Canceled)
}

// Principal returns a principal with the given rights, or all if there are none.
func Principal(rights ...contract.Right) contract.Principal {
	if len(rights) == 0 {
		rights = contract.AllRights()
	}
	return contract.Principal{Name: "ann", Writer: "ui-ann", Rights: rights}
}

// Main returns a session of the agent main.
func Main(session string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(session)}
}

// Fatal fails the test on an error.
func Fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

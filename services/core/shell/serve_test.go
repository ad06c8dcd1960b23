package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/test/natstest"
)

func TestQueriesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	caller, err := s.bus.NewCaller()
	must(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	for _, c := range []struct{ verb, body, want string }{
		{coreapi.VerbSessions, `{"limit":"ten"}`, "query: limit: got string, want a whole number"},
		{
			coreapi.VerbSessions, `{"agent":"no such.id"}`,
			`query: agent: invalid id: agent "no such.id": want 1 to 64 characters of A-Z a-z 0-9 _ -`,
		},
		{coreapi.VerbSessions, `[]`, "query: got array, want an object"},
		{coreapi.VerbSession, `{"session":7}`, "query: session: got number, want a string"},
		{coreapi.VerbCall, `{"tool":"a:b","extra":1}`, `query: unknown field "extra"`},
		{
			coreapi.VerbCall, `{"tool":"a:b","Tool":"c:d"}`,
			`query: unknown field "Tool": names are case-sensitive, want "tool"`,
		},
		{coreapi.VerbSession, ``, "query: the body is empty, want a JSON object"},
		{coreapi.VerbRefill, `{"all":"yes"}`, "query: all: got string, want true or false"},
		{coreapi.VerbRefill, `{`, "query: not JSON: unexpected end of JSON input (at byte 1)"},
		{coreapi.VerbPlugin, `{"plugin":7}`, "the request is invalid: plugin: got number, want a string"},
	} {
		service := coreapi.ServiceOf(c.verb)
		to := subject.Service(service, c.verb)
		if c.verb == coreapi.VerbCall {
			to = subject.Call("test")
		}
		_, err := caller.Request(natstest.Context(t), to, service, []byte(c.body))
		if bus.CodeOf(err) != bus.CodeInvalidArgument || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.verb, c.body, err, c.want)
		}
	}
}

// gatedStore holds up what is done with some sessions.
type gatedStore struct {
	store.Store
	gated func(store.Key) bool
	open  chan struct{}

	mu        sync.Mutex
	now, most int // at the gate
	passed    int
}

func gate(st store.Store, gated func(store.Key) bool) *gatedStore {
	return &gatedStore{Store: st, gated: gated, open: make(chan struct{})}
}

func (g *gatedStore) pass(k store.Key) {
	if !g.gated(k) {
		return
	}
	g.mu.Lock()
	g.now++
	g.most, g.passed = max(g.most, g.now), g.passed+1
	g.mu.Unlock()
	<-g.open
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
}

func (g *gatedStore) seen() (most, passed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most, g.passed
}

func (g *gatedStore) LoadSnapshot(ctx context.Context, k store.Key) (store.Snapshot, error) {
	g.pass(k)
	return g.Store.LoadSnapshot(ctx, k)
}

func (g *gatedStore) SaveSnapshot(ctx context.Context, k store.Key, s store.Snapshot) error {
	g.pass(k)
	return g.Store.SaveSnapshot(ctx, k, s)
}

// askAll sends a request for each of the sessions and returns when core has taken them
// all. The errors come as they are answered.
func (s *system) askAll(verb string, sessions []subject.Session) <-chan error {
	s.t.Helper()
	caller, err := s.bus.NewCaller()
	must(s.t, err)
	s.t.Cleanup(func() { _ = caller.Close() })
	ctx, service := natstest.Context(s.t), coreapi.ServiceOf(verb)
	to := subject.Service(service, verb)
	errs := make(chan error, len(sessions))
	for _, id := range sessions {
		body, err := json.Marshal(subject.Ref{Agent: "main", Session: id})
		must(s.t, err)
		_, err = caller.Send(ctx, to, service, nil, body, func(r bus.Reply) { errs <- r.Err })
		must(s.t, err)
	}
	if _, err := caller.Request(ctx, to, service, []byte("{}")); !errors.Is(err, bus.ErrInvalidArgument) {
		s.t.Fatalf("a request for no session: %v", err)
	}
	return errs
}

// Requests that fold sessions leave the log, the view and the processors to the turns.
func TestRequestsThatFoldDoNotStarveTurns(t *testing.T) {
	t.Parallel()
	const requests, waiting, atOnce = 300, 200, 2
	s := start(t, core.Config{})
	s.stopCore()
	g := gate(s.store(), func(k store.Key) bool { return strings.HasPrefix(k.Session, "asked") })
	s.view = g
	s.core = s.startCore(core.Config{})
	var sessions []subject.Session
	for i := range requests {
		sessions = append(sessions, subject.Session(fmt.Sprintf("asked%d", i)))
	}
	errs := s.askAll(coreapi.VerbSession, sessions)
	for range requests - waiting - atOnce { // while the others wait
		if err := <-errs; !errors.Is(err, bus.ErrOverloaded) || !bus.Retryable(err) ||
			!strings.Contains(err.Error(), "200 requests wait for sessions to be folded") {
			t.Fatalf("got %v, want overloaded", err)
		}
	}
	ref := subject.Ref{Agent: "main", Session: "live"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	s.await(events, event.TypeRecorded)
	close(g.open)
	for range waiting + atOnce {
		if err := <-errs; !errors.Is(err, bus.ErrNotFound) {
			t.Fatalf("got %v, want not found", err)
		}
	}
	if most, _ := g.seen(); most > atOnce {
		t.Errorf("%d sessions were folded at once, want at most %d", most, atOnce)
	}
}

func TestRequestsForTheSameSessionShareAFold(t *testing.T) {
	t.Parallel()
	const requests = 50
	for _, verb := range []string{coreapi.VerbSession, coreapi.VerbRefill} {
		t.Run(verb, func(t *testing.T) {
			s := start(t, core.Config{})
			ref := subject.Ref{Agent: "main", Session: "asked"}
			events := s.follow(ref)
			s.say(ref, event.Input{Text: "hello"})
			s.await(events, event.TypeRecorded)
			s.stopCore()
			g := gate(s.store(), func(k store.Key) bool { return k.Session == "asked" })
			s.view = g
			s.core = s.startCore(core.Config{})
			errs := s.askAll(verb, slices.Repeat([]subject.Session{ref.Session}, requests))
			if verb == coreapi.VerbRefill {
				natstest.Eventually(t, "all are in the audit log, where they are entered first",
					func() bool {
						return len(s.audit(coreapi.AuditQuery{Verb: audit.Rewritten, Limit: coreapi.MaxAudit})) >= requests
					})
			}
			close(g.open)
			for range requests {
				must(t, <-errs)
			}
			if _, n := g.seen(); n > requests/2 {
				t.Errorf("%d folds for %d requests", n, requests)
			}
		})
	}
}

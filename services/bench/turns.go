package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
)

const (
	toolName   = "bench:noop"
	slots      = 512 // of the benchmark's executors: never the limit
	bareStream = "BENCH"
	callOf     = "call " // begins an input whose turn calls the tool that it names
)

// Executor serves the benchmark's provider or runner until ctx ends: the model
// asks for one tool call, then answers; the tool does nothing.
func Executor(ctx context.Context, b *journal.Journal, role string) error {
	cfg := engine.Config{
		Kind: subject.Runner, Service: "bench-" + role, Pools: []contract.Pool{{Name: contract.DefaultPool, Slots: slots}},
		Logger: quiet, DrainTimeout: 100 * time.Millisecond,
	}
	if role == "provider" {
		cfg.Kind = subject.Provider
		cfg.Providers = []provider.Info{{Name: "bench", Model: "zero"}}
		cfg.Work = func(_ context.Context, r contract.Request, _ func(string)) contract.Answer { return think(r) }
	} else {
		cfg.Tools = []tool.Spec{{
			Name: toolName, Description: "does nothing", Idempotent: true,
			Args: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		}}
		cfg.Work = func(context.Context, contract.Request, func(string)) contract.Answer {
			res := tool.OK(map[string]int{"n": 1})
			return contract.Answer{State: contract.Finished, Result: &res}
		}
	}
	return engine.Serve(ctx, b, cfg)
}

func think(r contract.Request) contract.Answer {
	var last struct {
		Role provider.Role `json:"role"`
		Text string        `json:"text"`
	}
	if err := json.Unmarshal(r.Model.Messages[len(r.Model.Messages)-1], &last); err != nil {
		return contract.Answer{
			State: contract.Finished, Error: &provider.Error{Code: provider.ErrInternal, Message: err.Error()},
		}
	}
	res := provider.Response{TextContent: "done", IsFinal: true}
	if last.Role == provider.RoleUser {
		wanted, named := strings.CutPrefix(last.Text, callOf)
		if !named {
			wanted = toolName
		}
		res = provider.Response{ToolCalls: []provider.ToolCall{{ID: "1", Tool: wanted, Args: json.RawMessage(`{"n":1}`)}}}
	}
	return contract.Answer{State: contract.Finished, Response: &res}
}

// talker runs whole turns, one after another, in one session.
type talker struct {
	bus  *journal.Journal
	ref  subject.Ref
	ends chan bool
	subs []*nats.Subscription
}

func newTalker(b *journal.Journal, session string) (*talker, error) {
	return newTalkerTo(b, subject.Ref{Agent: "main", Session: subject.Session(session)})
}

// newTalkerTo returns a talker in a session of any agent.
func newTalkerTo(b *journal.Journal, ref subject.Ref) (*talker, error) {
	t := &talker{bus: b, ref: ref, ends: make(chan bool, 16)}
	recorded, failed := t.ref.Live("reflect", "recorded"), t.ref.Live("turn", "failed")
	for _, subj := range []string{recorded, failed} {
		sub, err := b.Conn().Subscribe(subj, func(m *nats.Msg) { t.ends <- m.Subject == recorded })
		if err != nil {
			return nil, err
		}
		t.subs = append(t.subs, sub)
	}
	return t, b.Conn().Flush()
}

// turn says something and waits for the terminal event.
func (t *talker) turn(ctx context.Context) error { return t.say(ctx, payload[:200]) }

// say is a turn with a text.
func (t *talker) say(ctx context.Context, text string) error {
	body, err := json.Marshal(event.Input{Text: text})
	if err != nil {
		return err
	}
	if _, err := t.bus.PublishCause(ctx, t.ref, subject.Input, "bench", "", body); err != nil {
		return err
	}
	patience := time.NewTimer(2 * time.Minute) // with 64 of them on a slow disk
	defer patience.Stop()
	select {
	case ok := <-t.ends:
		if !ok {
			return fmt.Errorf("a turn of %s failed", t.ref)
		}
		return nil
	case <-patience.C:
		return fmt.Errorf("a turn of %s did not end", t.ref)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *talker) close() {
	for _, s := range t.subs {
		_ = s.Unsubscribe() // the connection may be gone
	}
}

var payload = func() string {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return string(b)
}()

// bare is the raw turn: two model calls and a tool call as plain request/reply,
// and four durable events.
type bare struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	subj string
}

// ServeBare answers the raw turn's requests, as a provider or a runner.
func ServeBare(nc *nats.Conn, role string) error {
	reply := []byte(payload)
	// The asker times out if answering fails.
	if _, err := nc.Subscribe("bench."+role, func(m *nats.Msg) { _ = m.Respond(reply) }); err != nil {
		return err
	}
	return nc.Flush()
}

func newBare(ctx context.Context, b *journal.Journal, session string) (*bare, error) {
	_, err := b.JetStream().CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: bareStream, Subjects: []string{"benchlog.>"}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
	})
	return &bare{b.Conn(), b.JetStream(), "benchlog." + session}, err
}

func (b *bare) turn(ctx context.Context) error {
	body := []byte(payload)
	for _, role := range []string{"provider", "runner", "provider", ""} {
		if _, err := b.js.Publish(ctx, b.subj, body); err != nil {
			return err
		}
		if role == "" {
			break
		}
		if _, err := b.nc.RequestWithContext(ctx, "bench."+role, body); err != nil {
			return err
		}
	}
	return nil
}

// pair makes our turn and the raw one, each over a separate connection.
func (r *rig) pair(ctx context.Context, session string) (ours, raw func(context.Context) error, err error) {
	b, err := r.connect(ctx, "talker")
	if err != nil {
		return nil, nil, err
	}
	r.stops = append(r.stops, b.Close)
	t, err := newTalker(b, session)
	if err != nil {
		return nil, nil, err
	}
	if err := r.serveBare(ctx); err != nil {
		return nil, nil, err
	}
	n, err := newBare(ctx, b, session)
	if err != nil {
		return nil, nil, err
	}
	return t.turn, n.turn, nil
}

// serveBare answers the raw turn in this process.
func (r *rig) serveBare(ctx context.Context) error {
	for _, role := range []string{"provider", "runner"} {
		b, err := r.connect(ctx, "bare-"+role)
		if err != nil {
			return err
		}
		r.stops = append(r.stops, b.Close)
		if err := ServeBare(b.Conn(), role); err != nil {
			return err
		}
	}
	return nil
}

package provider_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
)

// oracle is a plugin's manifest with two providers.
func oracle() plugin.Manifest {
	return plugin.Manifest{Name: "oracle", Version: "1.0.0", Providers: []contract.Info{
		{Name: "delphi", Model: "pythia"}, {Name: "dodona", Model: "oak"},
	}}
}

// asksOracle is where the plugin is asked.
const asksOracle = "llm.oracle.generate"

// plugged is a provider service on a bus with plugins.
type plugged struct {
	*core
	registry *plugincalltest.Registry
	n        int
}

func startPlugged(t *testing.T, cfg provider.Config, adapters ...provider.Adapter) *plugged {
	t.Helper()
	if cfg.PluginGrace == 0 {
		cfg.PluginGrace = 50 * time.Millisecond
	}
	c := start(t, cfg, adapters...)
	return &plugged{core: c, registry: plugincalltest.New(t, c.bus)}
}

// startOracle is one with the plugin oracle, which answers with f.
func startOracle(t *testing.T, f func(*nats.Msg)) *plugged {
	t.Helper()
	p := startPlugged(t, provider.Config{})
	plugincalltest.Answer(t, plugincalltest.Client(t, p.server), "oracle", asksOracle, f)
	p.registry.Register(oracle(), "o1")
	p.awaitProviders("offline", "delphi", "dodona")
	return p
}

// awaitProviders waits until exactly these are announced, in this order.
func (p *plugged) awaitProviders(names ...string) {
	p.t.Helper()
	natstest.Eventually(p.t, fmt.Sprintf("the providers %q", names), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		var got []string
		for _, i := range p.announce[len(p.announce)-1].Providers {
			got = append(got, i.Name)
		}
		return fmt.Sprint(got) == fmt.Sprint(names)
	})
}

func (p *plugged) to(name string) executor.Request {
	p.n++
	q := question(p.t, fmt.Sprintf("t-p%d", p.n), "will it rain?")
	q.Provider = name
	return q
}

const rain = `{"response":{"is_final":true,"text_content":"rain","usage":{"input_tokens":1,"output_tokens":2}}}`

func TestAPluginIsAProvider(t *testing.T) {
	calls := make(chan contract.Call, 1)
	p := startOracle(t, func(m *nats.Msg) {
		var c contract.Call
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Error(err)
		}
		calls <- c
		_ = m.Respond([]byte(rain))
	})
	a := p.answer(p.ask(p.to("dodona")))
	if a.State != executor.Finished || a.Response == nil || a.Response.TextContent != "rain" ||
		a.Response.Usage.OutputTokens != 2 || !a.Response.IsFinal {
		t.Fatalf("answer is %+v (%v)", a, a.Error)
	}
	c := <-calls
	if c.Plan != "t-p1" || c.Attempt != "n1" || c.Agent != "a" || c.Session != "s" || c.Provider != "dodona" ||
		time.Until(c.Deadline) <= 0 ||
		len(c.Request.Messages) != 1 || !strings.Contains(string(c.Request.Messages[0]), "will it rain?") {
		t.Errorf("the plugin got %+v", c)
	}
	if a := p.answer(p.ask(p.to(""))); a.Response == nil || a.Response.TextContent == "rain" {
		t.Errorf("by default the adapter answers, got %+v (%v)", a, a.Error)
	}
}

func TestWhatAPluginAnswers(t *testing.T) {
	var reply string
	p := startOracle(t, func(m *nats.Msg) { _ = m.Respond([]byte(reply)) })
	for name, c := range map[string]struct {
		reply string
		want  contract.ErrorCode
		words string
	}{
		"its own failure": {
			`{"error":{"code":"rate_limited","message":"not today","retryable":true,"retry_in_ms":1500}}`,
			contract.ErrRateLimited, "not today",
		},
		"no key": {
			`{"error":{"code":"auth","message":"no key","retryable":false}}`, contract.ErrAuth, "no key",
		},
		"a failure without why": {
			`{"error":{"code":"internal","message":"","retryable":false}}`, contract.ErrInternal, "no reason",
		},
		"a code that is none": {`{"error":{"code":"oops","message":"x","retryable":true}}`, contract.ErrInternal, "oops"},
		"an endless reason": {
			`{"error":{"code":"internal","message":"` + strings.Repeat("x", 100000) + `"}}`, contract.ErrInternal, "xxx",
		},
		"garbage": {"\x00", contract.ErrGarbage, "provider reply"},
		"nothing": {"", contract.ErrGarbage, "empty"},
		"null":    {"null", contract.ErrGarbage, "one of"},
		"neither": {"{}", contract.ErrGarbage, "one of"},
		"both": {
			`{"response":{"text_content":"x"},"error":{"code":"internal","message":"x"}}`, contract.ErrGarbage, "one of",
		},
		"a half bare response": {
			`{"is_final":true,"text_content":"x","response":{"text_content":"x"}}`, contract.ErrGarbage, "is_final",
		},
		"a bare one with more": {`{"is_final":true,"text_content":"x","mood":"good"}`, contract.ErrGarbage, "mood"},
		"a bare one with none": {`{"is_final":true}`, contract.ErrGarbage, "neither"},
		"two replies":          {rain + rain, contract.ErrGarbage, "follows"},
		"half a reply":         {rain[:30], contract.ErrGarbage, "reply"},
		"no text and no calls": {`{"response":{"is_final":true}}`, contract.ErrGarbage, "neither"},
		"a call that is none":  {`{"response":{"tool_calls":[{"id":"1","args":{}}]}}`, contract.ErrGarbage, "tool"},
		"negative usage": {
			`{"response":{"text_content":"x","usage":{"input_tokens":-5,"output_tokens":0}}}`, contract.ErrGarbage, "negative",
		},
		"too much text": {
			`{"response":{"text_content":"` + strings.Repeat("x", 250<<10) + `"}}`, contract.ErrTooLong, "longer",
		},
		"too much state": {
			`{"response":{"text_content":"x","provider_state":"` + strings.Repeat("x", 150<<10) + `"}}`, contract.ErrTooLong,
			"state",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reply = c.reply
			a := p.answer(p.ask(p.to("delphi")))
			if a.State != executor.Finished || a.Error == nil || a.Error.Code != c.want || a.Response != nil {
				t.Fatalf("answer is %+v (%v)", a, a.Error)
			}
			if !strings.Contains(a.Error.Message, c.words) || len(a.Error.Message) > 5000 {
				t.Errorf("the message is %.300q", a.Error.Message)
			}
		})
	}
	reply = `{"error":{"code":"rate_limited","message":"x","retryable":true,"retry_in_ms":-1}}`
	if a := p.answer(p.ask(p.to("delphi"))); a.Error == nil || a.Error.RetryInMS != 0 || !a.Error.Retryable {
		t.Errorf("answer is %+v", a.Error)
	}
}

// The specification's generate answers with the response itself.
func TestABareResponseIsAReply(t *testing.T) {
	p := startOracle(t,
		func(m *nats.Msg) { _ = m.Respond([]byte(`{"is_final":true,"tool_calls":null,"text_content":"rain"}`)) })
	if a := p.answer(p.ask(p.to("delphi"))); a.Response == nil || a.Response.TextContent != "rain" {
		t.Errorf("answer is %+v (%v)", a, a.Error)
	}
}

func TestAPluginsErrorReply(t *testing.T) {
	var code string
	p := startOracle(t, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{
			Header: nats.Header{bus.ErrorHeader: {code}}, Data: []byte(`{"code":"x","message":"because","retryable":false}`),
		})
	})
	for c, want := range map[string]contract.ErrorCode{
		"invalid_argument": contract.ErrBadRequest, "not_found": contract.ErrBadRequest, "denied": contract.ErrBadRequest,
		"unavailable": contract.ErrUnavailable, "conflict": contract.ErrUnavailable, "timeout": contract.ErrTimeout,
		"too_large": contract.ErrTooLong, "internal": contract.ErrInternal, "unheard_of": contract.ErrInternal,
	} {
		code = c
		if a := p.answer(p.ask(p.to("delphi"))); a.Error == nil || a.Error.Code != want ||
			!strings.Contains(a.Error.Message, "because") {
			t.Errorf("%s: answer is %+v", c, a.Error)
		}
	}
}

// Text without end comes by way of a claim.
func TestAHugeAnswer(t *testing.T) {
	body := []byte(`{"response":{"text_content":"` + strings.Repeat("x", 10<<20) + `"}}`)
	sum := sha256.Sum256(body)
	ref := hex.EncodeToString(sum[:]) + ".1"
	p := startOracle(t, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{bus.ClaimHeader: {ref}}})
	})
	if a := p.answer(p.ask(p.to("delphi"))); a.Error == nil || a.Error.Code != contract.ErrGarbage {
		t.Fatalf("a claim that is not there: %+v", a.Error)
	}
	store, err := p.bus.JetStream().ObjectStore(natstest.Context(t), bus.BucketClaims)
	if err == nil {
		_, err = store.PutBytes(natstest.Context(t), ref, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a := p.answer(p.ask(p.to("delphi"))); a.Error == nil || a.Error.Code != contract.ErrTooLong {
		t.Fatalf("answer is %+v", a.Error)
	}
}

func TestAPluginThatIsNotThere(t *testing.T) {
	p := startPlugged(t, provider.Config{})
	p.registry.Register(oracle(), "o1")
	p.awaitProviders("offline", "delphi", "dodona")
	if a := p.answer(p.ask(p.to("delphi"))); a.Error == nil || a.Error.Code != contract.ErrUnavailable ||
		!a.Error.Retryable {
		t.Fatalf("answer is %+v", a.Error)
	}
}

func TestAPluginThatDiesInMidAnswer(t *testing.T) {
	got := make(chan *nats.Msg, 10)
	p := startOracle(t, func(m *nats.Msg) { got <- m })
	plugincalltest.Core(t, p.server)
	final := p.ask(p.to("delphi"))
	<-got
	p.registry.End("oracle", "o1")
	if a := p.answer(final); a.Error == nil || a.Error.Code != contract.ErrUnavailable || !a.Error.Retryable {
		t.Fatalf("answer is %+v", a.Error)
	}
	p.awaitProviders("offline")
	if a := p.answer(p.ask(p.to("delphi"))); a.State != executor.Refused || a.Reason != executor.RefusedUnknown {
		t.Fatalf("a new question: %+v", a)
	}
}

func TestAPluginThatSaysNothing(t *testing.T) {
	got := make(chan *nats.Msg, 10)
	p := startOracle(t, func(m *nats.Msg) { got <- m })
	p.timesOut(got)
	q := p.to("delphi")
	running := p.ask(q)
	m := <-got
	stop := executor.Request{Op: executor.OpStop, Agent: q.Agent, Session: q.Session, Call: q.Call, Attempt: q.Attempt}
	if a := p.answer(p.ask(stop)); a.State != executor.Stopped {
		t.Fatalf("answer to the stop is %+v", a)
	}
	if a := p.answer(running); a.State != executor.Stopped {
		t.Fatalf("answer is %+v", a)
	}
	_ = m.Respond([]byte(rain)) // too late, and nobody minds
	next := p.ask(p.to("delphi"))
	_ = (<-got).Respond([]byte(strings.Replace(rain, "rain", "sun", 1)))
	if a := p.answer(next); a.Response == nil || a.Response.TextContent != "sun" {
		t.Fatalf("answer is %+v", a)
	}
}

// timesOut asks the plugin, which receives the deadline and does not keep it.
func (p *plugged) timesOut(got <-chan *nats.Msg) {
	p.t.Helper()
	for wait := 200 * time.Millisecond; ; wait *= 4 {
		q := p.to("delphi")
		q.NotAfter = time.Now().Add(wait)
		a := p.answer(p.ask(q))
		if a.Reason == executor.RefusedLate {
			continue // its time was over when it came; it gets more
		}
		if a.Error == nil || a.Error.Code != contract.ErrTimeout {
			p.t.Fatalf("answer is %+v", a.Error)
		}
		// What comes after the question, if that came so far in its time.
		if err := p.conn.Publish(asksOracle, nil); err != nil {
			p.t.Fatal(err)
		}
		m := <-got
		if len(m.Data) == 0 {
			continue
		}
		<-got
		if at, ok := bus.Deadline(m.Header); !ok || at.UnixMilli() != q.NotAfter.UnixMilli() {
			p.t.Errorf("the plugin got the deadline %v, want %v", at, q.NotAfter)
		}
		return
	}
}

// What an adapter is called, no plugin is; plugins come after the adapters, in
// the order of the registry.
func TestWhoIsAnnounced(t *testing.T) {
	p := startPlugged(t, provider.Config{}, careless{name: "one", text: "1"}, careless{name: "two", text: "2"})
	thief := plugin.Manifest{Name: "thief", Version: "1.0.0", Priority: 9, Providers: []contract.Info{
		{Name: "two", Model: "m"}, {Name: "loot", Model: "m"}, {Name: "chatty", Model: "m", Note: strings.Repeat("x", 2000)},
	}}
	p.registry.Register(oracle(), "o1")
	p.registry.Register(thief, "t1")
	p.awaitProviders("one", "two", "loot", "delphi", "dodona")
	if a := p.answer(p.ask(p.to("two"))); a.Response == nil || a.Response.TextContent != "2" {
		t.Errorf("answer is %+v", a)
	}
	p.registry.Suspend(thief, "it steals")
	p.awaitProviders("one", "two", "delphi", "dodona")
}

func TestPluginsCanBeLeftOut(t *testing.T) {
	p := startPlugged(t, provider.Config{NoPlugins: true})
	p.registry.Register(oracle(), "o1")
	if a := p.answer(p.ask(p.to("delphi"))); a.State != executor.Refused || a.Reason != executor.RefusedUnknown {
		t.Fatalf("answer is %+v", a)
	}
}

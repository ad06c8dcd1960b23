package shell_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/outbox"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/effect"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/test/natstest"
)

// room is where a gateway delivers to. What arrives in it is what the other side sees.
type room struct {
	mu      sync.Mutex
	arrived []tool.Delivery
	keys    []string
	calls   int
	// answers says what the n-th call does, from 1; nil: it delivers.
	answers func(n int, r *room, d tool.Delivery, begin func() error) tool.Result
	probed  func(r *room, d tool.Delivery) tool.Result
}

// put lets a message arrive.
func (r *room) put(d tool.Delivery, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived, r.keys = append(r.arrived, d), append(r.keys, key)
}

func (r *room) texts() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.arrived {
		out = append(out, string(d.Kind)+": "+d.Text)
	}
	return out
}

// gateway offers deliver:test, as the listener service does for its gateways.
func (s *system) gateway(r *room) {
	b := s.connect()
	marks := effect.New(b)
	work := func(ctx context.Context, q contract.Request, _ func(string)) contract.Answer {
		var d tool.Delivery
		if err := json.Unmarshal(q.Tool.Args, &d); err != nil {
			s.t.Errorf("arguments of a delivery: %v", err)
		}
		key := effect.Key(q.Tool.Key, q.Call)
		var res tool.Result
		if q.Tool.Probe != nil {
			res = marks.Probe(ctx, key, func(effect.Record) tool.Result { return r.probed(r, d) })
		} else {
			r.mu.Lock()
			r.calls++
			n := r.calls
			r.mu.Unlock()
			res = marks.Run(ctx, key, q.Attempt, func(begin func(context.Context) error) tool.Result {
				if r.answers != nil {
					return r.answers(n, r, d, func() error { return begin(ctx) })
				}
				if err := begin(ctx); err != nil {
					return tool.Failure(tool.CodeFailed, err.Error())
				}
				r.put(d, q.Tool.Key)
				return tool.OK(nil)
			})
		}
		return contract.Answer{Result: &res}
	}
	s.background("gateway", func(ctx context.Context) error {
		return engine.Serve(ctx, b, engine.Config{
			Kind: subject.Runner, Service: "listener", Logger: natstest.Logger(s.t), DrainTimeout: 100 * time.Millisecond,
			Work: work, Offer: engine.Offer{Tools: []tool.Spec{{
				Name: tool.Deliverer("test"), Description: "delivers", Args: json.RawMessage(`{"type":"object"}`),
				Internal: true, Probe: true, TimeoutMS: 5000,
			}}},
		})
	})
}

func (s *system) outbox(q coreapi.OutboxQuery) (p coreapi.OutboxPage, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		s.t.Fatal(err)
	}
	caller, err := s.bus.NewCaller()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	reply, err := caller.Request(natstest.Context(s.t), subject.Service("admin", coreapi.VerbOutbox), "admin", body)
	if err == nil {
		err = json.Unmarshal(reply, &p)
	}
	return p, err
}

func (s *system) awaitTexts(r *room, want ...string) {
	s.t.Helper()
	natstest.Eventually(s.t, "these arrive: "+strings.Join(want, "; "), func() bool { return slices.Equal(r.texts(), want) })
}

func TestAnswersAreDeliveredInOrderAndOnce(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	r := &room{answers: func(n int, r *room, d tool.Delivery, begin func() error) tool.Result {
		if n == 1 {
			return tool.Failure(tool.CodeFailed, "not now")
		}
		if err := begin(); err != nil {
			return tool.Failure(tool.CodeFailed, err.Error())
		}
		r.put(d, "")
		return tool.OK(nil)
	}}
	ref := subject.Ref{Agent: "main", Session: "ordered"}
	for i := range 3 {
		s.say(ref, event.Input{Text: strconv.Itoa(i), ID: "m" + strconv.Itoa(i), ReplyTo: "#ops"})
	}
	s.say(ref, event.Input{Text: "not for them"})
	s.say(ref, event.Input{Text: "0", ID: "m0", ReplyTo: "#ops"}) // a repetition
	natstest.Eventually(t, "three messages wait for their gateway", func() bool {
		p, err := s.outbox(coreapi.OutboxQuery{State: coreapi.OutboxWaiting})
		return err == nil && len(p.Messages) == 3
	})
	s.gateway(r)
	s.awaitTexts(r, "answer: echo: 0", "answer: echo: 1", "answer: echo: 2")
	if d := r.arrived[1]; d.To != "#ops" || d.InReplyTo != "m1" || d.Turn == "" {
		t.Errorf("%+v", d)
	}
	natstest.Eventually(t, "nothing is left", func() bool {
		p, err := s.outbox(coreapi.OutboxQuery{})
		return err == nil && len(p.Messages) == 0
	})
}

func TestFailuresAndRequestsForApprovalAreDelivered(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleTool {
			return provider.Response{TextContent: "it was " + m.Text}
		}
		return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(
			`{"path":"a.txt","url":"https://b/?token=HUSH","headers":{"X-Api-Key":"HUSH"},"body":"{\"password\":\"HUSH\"}"}`,
		)})
	}
	r := &room{}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "asks"}
	s.say(ref, event.Input{Text: "delete it", ReplyTo: "#ops"})
	natstest.Eventually(t, "the request arrives", func() bool { return len(r.texts()) == 1 })
	a := r.arrived[0].Approval
	if r.arrived[0].Kind != tool.KindApproval || a == nil || a.Tool != "test:risky" || !strings.Contains(r.arrived[0].Text, "a.txt") {
		t.Fatalf("%+v", r.arrived[0])
	}
	if strings.Contains(r.arrived[0].Text, "HUSH") {
		t.Errorf("the text shows a secret: %s", r.arrived[0].Text)
	}
	body, err := json.Marshal(event.Confirmation{ConfirmationID: a.ConfirmationID, Hash: a.Hash, Approved: true, From: "alice"})
	if err == nil {
		_, err = s.bus.PublishCause(natstest.Context(t), ref, subject.Confirmation, "web", "", body)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the answer arrives", func() bool {
		all := r.texts()
		return len(all) == 2 && strings.HasPrefix(all[1], "answer: it was")
	})
	s.say(subject.Ref{Agent: "nosuch", Session: "asks"}, event.Input{Text: "x", ReplyTo: "#ops"})
	natstest.Eventually(t, "the failure arrives", func() bool {
		all := r.texts()
		return len(all) == 3 && strings.HasPrefix(all[2], "failure: ") && strings.Contains(all[2], "unknown agent")
	})
}

// What may have been sent is found out, and not sent again unless it certainly was not.
func TestADeliveryWhoseOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sends, begins bool
		probe         func(r *room, d tool.Delivery) tool.Result
		want          []string
		dead          bool
	}{
		"was sent": {
			true, true, func(r *room, d tool.Delivery) tool.Result { return tool.OK("found") },
			[]string{"answer: echo: x"},
			false,
		},
		"had not begun": {false, false, nil, []string{"answer: echo: x"}, false},
		"was not sent": {false, true, func(*room, tool.Delivery) tool.Result {
			return tool.Failure(tool.CodeNotRun, "it is not there")
		}, []string{"answer: echo: x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, core.Config{})
			r := &room{probed: c.probe, answers: func(n int, r *room, d tool.Delivery, begin func() error) tool.Result {
				if n > 1 || c.begins {
					if err := begin(); err != nil {
						return tool.Failure(tool.CodeFailed, err.Error())
					}
				}
				if n > 1 || c.sends {
					r.put(d, "")
				}
				if n == 1 {
					return tool.Failure(tool.CodeOutcomeUnknown, "the connection broke")
				}
				return tool.OK(nil)
			}}
			s.gateway(r)
			s.say(subject.Ref{Agent: "main", Session: "unknown"}, event.Input{Text: "x", ReplyTo: "#ops"})
			s.awaitTexts(r, c.want...)
			natstest.Eventually(t, "it is settled", func() bool {
				p, err := s.outbox(coreapi.OutboxQuery{})
				return err == nil && len(p.Messages) == 0
			})
			s.awaitTexts(r, c.want...)
		})
	}
}

// A stranger is not asked: neither by the answer's way, nor because somebody else is notified.
func TestAStrangerIsNotAskedForApproval(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Notify: outbox.Notify{Rules: []outbox.NotifyRule{
		{On: []outbox.Occasion{outbox.OnApproval}, Via: "test", To: "#people"},
	}}})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleTool {
			return provider.Response{TextContent: "it was " + m.Text}
		}
		return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{"path":"a.txt"}`)})
	}
	r := &room{}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "stranger"}
	s.say(ref, event.Input{Text: "delete it", ReplyTo: "mallory", Origin: "email:mallory@example.org"})
	natstest.Eventually(t, "people are notified", func() bool { return len(r.texts()) == 1 })
	a := r.arrived[0]
	body, err := json.Marshal(event.Confirmation{ConfirmationID: a.Approval.ConfirmationID, Hash: a.Approval.Hash})
	if err == nil {
		_, err = s.bus.PublishCause(natstest.Context(t), ref, subject.Confirmation, "web", "", body)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the answer arrives", func() bool { return len(r.texts()) == 2 })
	if to := r.arrived[1].To; a.To != "#people" || to != "mallory" || r.arrived[1].Kind != tool.KindAnswer {
		t.Errorf("delivered to %s and %s: %+v", a.To, to, r.arrived[1])
	}
}

func TestADeadDeliveryIsSentAgainByHand(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	r := &room{answers: func(n int, r *room, d tool.Delivery, begin func() error) tool.Result {
		if n == 1 {
			f := tool.Failure(tool.CodeFailed, "no such room")
			f.Metadata = map[string]any{tool.MetadataPermanent: true}
			return f
		}
		if err := begin(); err != nil {
			return tool.Failure(tool.CodeFailed, err.Error())
		}
		r.put(d, "")
		return tool.OK(nil)
	}}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "dead"}
	s.say(ref, event.Input{Text: "one", ReplyTo: "#ops"})
	s.say(ref, event.Input{Text: "two", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: two") // a dead one holds nothing up
	p, err := s.outbox(coreapi.OutboxQuery{State: coreapi.OutboxDead})
	if err != nil || len(p.Messages) != 1 || !strings.Contains(p.Messages[0].Error, "no such room") {
		t.Fatalf("%+v %v", p, err)
	}
	if _, err := s.outbox(coreapi.OutboxQuery{Action: coreapi.OutboxResend, ID: "nothing"}); err == nil {
		t.Error("a message that does not exist was sent again")
	}
	if _, err := s.outbox(coreapi.OutboxQuery{Action: coreapi.OutboxResend, ID: p.Messages[0].ID}); err != nil {
		t.Fatal(err)
	}
	s.awaitTexts(r, "answer: echo: two", "answer: echo: one")
}

// The core that delivers ends while the gateway is at it; another one finds out what became of it.
func TestAnotherCoreTakesOverADelivery(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	stopFirst := s.stopCore
	s.startCore(core.Config{})
	began := make(chan struct{})
	r := &room{
		answers: func(n int, r *room, d tool.Delivery, begin func() error) tool.Result {
			if err := begin(); err != nil {
				return tool.Failure(tool.CodeFailed, err.Error())
			}
			r.put(d, "")
			if n == 1 {
				close(began)
			}
			return tool.OK(nil)
		},
		probed: func(*room, tool.Delivery) tool.Result { return tool.OK("found") },
	}
	s.gateway(r)
	s.say(subject.Ref{Agent: "main", Session: "over"}, event.Input{Text: "x", ReplyTo: "#ops"})
	<-began
	stopFirst()
	s.say(subject.Ref{Agent: "main", Session: "over"}, event.Input{Text: "y", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: x", "answer: echo: y")
}

func TestPeopleAreNotified(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Notify: outbox.Notify{Page: "https://agent.example.org/", Rules: []outbox.NotifyRule{
		{On: []outbox.Occasion{outbox.OnApproval, outbox.OnFailed}, Via: "test", To: "ops"},
		{On: []outbox.Occasion{outbox.OnApproval}, Via: "test", To: "later", After: 3 * time.Second},
		{On: []outbox.Occasion{outbox.OnFailed}, Agent: "other", Via: "test", To: "nobody"},
	}}})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleTool {
			return provider.Response{TextContent: "it was " + m.Text}
		}
		return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
	}
	r := &room{}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "notified"}
	s.say(ref, event.Input{Text: "from a terminal"})
	natstest.Eventually(t, "people are asked", func() bool { return len(r.texts()) == 1 })
	first := r.arrived[0]
	if first.To != "ops" || first.Approval == nil || first.Link != "https://agent.example.org/#/main/notified" {
		t.Fatalf("%+v", first)
	}
	body, err := json.Marshal(event.Confirmation{ConfirmationID: first.Approval.ConfirmationID, Hash: first.Approval.Hash})
	if err == nil {
		_, err = s.bus.PublishCause(natstest.Context(t), ref, subject.Confirmation, "web", "", body)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "nothing is left", func() bool {
		p, err := s.outbox(coreapi.OutboxQuery{})
		return err == nil && len(p.Messages) == 0
	})
	if all := r.texts(); len(all) != 1 {
		t.Errorf("what was answered is asked again: %q", all)
	}
}

func TestRulesOfNotificationsAreChecked(t *testing.T) {
	t.Parallel()
	err := outbox.Notify{Page: "agent", Rules: []outbox.NotifyRule{
		{On: []outbox.Occasion{"joy"}, Via: "not valid", After: -1}, {},
	}}.Validate()
	for _, want := range []string{
		"notify.page is", "rules[0].on has", "rules[0].via is", "rules[0].to has", "rules[0].after is", "rules[1].on is missing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A policy that denies everything judges calls; what the agent says in answer is delivered.
func TestNoPolicyHoldsAnswersBack(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Policy: []core.Rule{{Tool: "*", Effect: "deny", Reason: "nothing"}}})
	r := &room{}
	s.gateway(r)
	s.say(subject.Ref{Agent: "main", Session: "strict"}, event.Input{Text: "hi", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: hi")
}

// What nothing can find out is given up at once, so that the messages behind it do not wait.
func TestAnOutcomeThatIsNeverKnownHoldsNothingUp(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	r := &room{
		probed: func(*room, tool.Delivery) tool.Result {
			u := tool.Failure(tool.CodeOutcomeUnknown, "servers keep no messages")
			u.Metadata = map[string]any{tool.MetadataPermanent: true}
			return u
		},
		answers: func(n int, r *room, d tool.Delivery, begin func() error) tool.Result {
			if err := begin(); err != nil {
				return tool.Failure(tool.CodeFailed, err.Error())
			}
			if n == 1 {
				return tool.Failure(tool.CodeOutcomeUnknown, "the connection broke")
			}
			r.put(d, "")
			return tool.OK(nil)
		},
	}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "lost"}
	s.say(ref, event.Input{Text: "one", ReplyTo: "#ops"})
	s.say(ref, event.Input{Text: "two", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: two")
	natstest.Eventually(t, "only the lost one is left, as dead", func() bool {
		p, err := s.outbox(coreapi.OutboxQuery{})
		return err == nil && len(p.Messages) == 1 && p.Messages[0].State == coreapi.OutboxDead &&
			strings.Contains(p.Messages[0].Error, "servers keep no messages")
	})
}

// The bucket is lost while this core has its lease.
func TestALostOutboxIsUsedAgain(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	r := &room{}
	s.gateway(r)
	ref := subject.Ref{Agent: "main", Session: "again"}
	s.say(ref, event.Input{Text: "one", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: one")
	if err := s.bus.JetStream().DeleteKeyValue(natstest.Context(t), "outbox"); err != nil {
		t.Fatal(err)
	}
	s.say(ref, event.Input{Text: "two", ReplyTo: "#ops"})
	s.awaitTexts(r, "answer: echo: one", "answer: echo: two")
}

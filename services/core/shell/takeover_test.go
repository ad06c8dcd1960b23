package shell_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/loader"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// The consumer was in the memory of a server that died. The recreated one delivers
// everything for the first time, in the order of the log: first causes settled long
// ago, then the cause whose holder must drive.
func TestTheDriversDeliveryComesSecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		hang string // what is in progress when the core stops
	}{{"while the model is asked", "model"}, {"while a tool runs", "tool"}} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, core.Config{})
			asked, answer := make(chan struct{}), make(chan struct{})
			ran := sync.OnceFunc(func() { close(asked) })
			s.model = func(m provider.Message) provider.Response {
				if m.Role == provider.RoleUser && m.Text == "slow" {
					if c.hang == "tool" {
						return calls(provider.ToolCall{ID: "1", Tool: "test:once", Args: json.RawMessage(`{}`)})
					}
					ran()
					<-answer
				}
				return provider.Response{TextContent: "done"}
			}
			s.tool = func(context.Context, contract.ToolCall) tool.Result {
				close(asked)
				<-answer
				return tool.OK("done")
			}
			ref := subject.Ref{Agent: "main", Session: "s1"}
			ch := s.follow(ref)
			s.say(ref, event.Input{Text: "quick"})
			s.await(ch, event.TypeRecorded)
			slow := s.say(ref, event.Input{Text: "slow"})
			<-asked

			s.stopCore()
			if err := s.bus.JetStream().DeleteConsumer(t.Context(), bus.StreamSessions, "core"); err != nil {
				t.Fatal(err)
			}
			s.startCore(core.Config{})
			close(answer)

			var rec event.Recorded
			if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
				t.Fatal(err)
			}
			if rec.Sequence != slow || rec.Answer != "done" {
				t.Errorf("%+v, want the answer to %d", rec, slow)
			}
		})
	}
}

// The driver of a turn may be a cause without effect, if its holder decided the cause
// before it. Repeated deliveries, while cores come and go, do not make it poison.
func TestADriverWithoutEffectIsNoPoison(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	answer := make(chan struct{})
	s.tool = func(context.Context, contract.ToolCall) tool.Result {
		<-answer
		return tool.OK("done")
	}
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var q event.ToolCallRequest
	if err := s.await(ch, event.TypeToolCallRequest).DataAs(&q); err != nil {
		t.Fatal(err)
	}
	s.stopCore()
	body, err := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	var second uint64
	for range 2 { // the same confirmation, in two messages
		if second, err = s.bus.PublishCause(t.Context(), ref, subject.Confirmation, "ui", "", body); err != nil {
			t.Fatal(err)
		}
	}
	// Only the second is delivered, as if another core held the first.
	if err := s.bus.JetStream().DeleteConsumer(t.Context(), bus.StreamSessions, "core"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.JetStream().CreateConsumer(t.Context(), bus.StreamSessions, jetstream.ConsumerConfig{
		Durable: "core", FilterSubject: subject.AllCauses, AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: second, MemoryStorage: true,
	}); err != nil {
		t.Fatal(err)
	}
	for range tooOften {
		c := s.startCore(core.Config{})
		natstest.Eventually(t, "it is delivered", func() bool { return c.Counters()["deliveries"] > 0 })
		natstest.Eventually(t, "it drives", func() bool {
			state, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(t)}).Rebuild(t.Context(), ref)
			return err == nil && state.Driver == second
		})
		s.stopCore()
	}
	last := s.startCore(core.Config{})
	close(answer)
	s.await(ch, event.TypeRecorded)
	if n := last.Counters()["poison"]; n != 0 {
		t.Errorf("%d causes were taken for poison", n)
	}
}

// tooOften is enough deliveries to suspect a cause that was not decided (rule 13).
const tooOften = 4

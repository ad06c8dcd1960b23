package contract

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// A listener needs no more than a request of its client: JetStream answers.
func TestTheLeastInputIsAcknowledgedByTheServer(t *testing.T) {
	c := files(t)
	srv := natstest.Start(t)
	b := natstest.Connect(t, srv)
	body := []byte(`{"text": "hello"}`)
	if err := c.schema(t, "events/sense.input.v1.message").Validate(decode(t, body)); err != nil {
		t.Fatal(err)
	}
	m, err := b.Conn().RequestWithContext(natstest.Context(t), "agent.demo.s1.sense.input.me", body)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.schema(t, "events/ack").Validate(decode(t, m.Data)); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Stream != "SESSIONS" || ack.Seq != 1 {
		t.Errorf("%s: %v", m.Data, err)
	}
}

// What the server refuses, it refuses in the form of the contract.
func TestARefusalOfTheServerIsAnAcknowledgementWithError(t *testing.T) {
	c := files(t)
	b := natstest.Connect(t, natstest.Start(t))
	m := nats.NewMsg("agent.demo.s1.sense.input.me")
	m.Data = []byte(`{"text": "hello"}`)
	m.Header.Set("Nats-Expected-Last-Sequence", "77")
	got, err := b.Conn().RequestMsgWithContext(natstest.Context(t), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.schema(t, "events/ack").Validate(decode(t, got.Data)); err != nil ||
		!bytes.Contains(got.Data, []byte(`"error"`)) {
		t.Fatalf("%s: %v", got.Data, err)
	}
}

// The pattern for followers takes live events, and neither causes nor commits.
func TestFollowersSeeLiveEventsAlone(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	ref := subject.Ref{Agent: "demo", Session: "s1"}
	sub, err := b.Conn().SubscribeSync("agent.demo.s1.*.*")
	if err != nil {
		t.Fatal(err)
	}
	live := event.Event{Agent: ref.Agent, Session: ref.Session, Type: event.TypeUIReady}.Live()
	for _, s := range []string{ref.Cause(subject.Input, "me"), ref.Commit(), live} {
		if err := b.Conn().Publish(s, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := sub.NextMsgWithContext(natstest.Context(t))
	if err != nil || m.Subject != live {
		t.Errorf("the first message is %+v, %v", m, err)
	}
}

// A request to an executor is lines, each of the form that the contract gives it.
func TestRequestsToExecutorsAreLinesOfTheContract(t *testing.T) {
	c := files(t)
	for seed := range uint64(200) {
		f := &filler{T: t, c: c, r: rand.New(rand.NewPCG(seed, 2))} // repeatable on purpose
		req := f.value("executor/request").(executor.Request)
		b, err := executor.Encode(req, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(b, []byte{'\n'})
		if err := c.schema(t, "executor/request").Validate(decode(t, lines[0])); err != nil {
			t.Fatalf("seed %d: %s\n%v", seed, lines[0], err)
		}
		for i, line := range lines[1:] {
			if i == 0 {
				tools, _ := decode(t, line).([]any)
				for _, v := range tools {
					if err := c.schema(t, "provider/tool_spec").Validate(v); err != nil {
						t.Fatalf("seed %d: %s\n%v", seed, line, err)
					}
				}
			} else if err := c.schema(t, "provider/message").Validate(decode(t, line)); err != nil {
				t.Fatalf("seed %d: %s\n%v", seed, line, err)
			}
		}
		if want := 0; req.Model != nil {
			if want = 1 + len(req.Model.Messages); len(lines)-1 != want {
				t.Fatalf("seed %d: %d lines follow, want %d", seed, len(lines)-1, want)
			}
		}
		// Both forms are read, and as the same.
		inline := f.encode(req)
		for _, form := range [][]byte{b, inline} {
			got, err := new(executor.Decoder).Decode(form)
			if err != nil {
				t.Fatalf("seed %d: %s\n%v", seed, form, err)
			}
			if string(f.encode(got)) != string(inline) {
				t.Fatalf("seed %d:\n%s\nis read as\n%s", seed, inline, f.encode(got))
			}
		}
	}
}

package rightstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/test/natstest"
)

// A listener reads the answers to its own inputs, without the right to see the session.
func TestAListenerReadsItsAnswers(t *testing.T) {
	r := run(t)
	nc := r.plain(r.invite(rights.Charter{Name: "clock", Listeners: []subject.Writer{"clock"}, Agents: []subject.Agent{"main"}}))
	answers := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("answer.clock.main.*.*.*", answers); err != nil {
		t.Fatal(err)
	}
	r.flush(nc)
	if _, err := nc.Request("agent.main.c.sense.input.clock", []byte(`{"text":"what is 2+2?"}`), natstest.Patience); err != nil {
		t.Fatal(err)
	}
	r.turn("c", "what is 3+3?") // by somebody else: it is not for the listener
	var end event.Recorded
	for end.Answer == "" {
		select {
		case m := <-answers:
			var e event.Event
			if err := json.Unmarshal(m.Data, &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == event.TypeRecorded {
				if err := e.DataAs(&end); err != nil {
					t.Fatal(err)
				}
			}
		case <-time.After(natstest.Patience):
			t.Fatal("no answer came")
		}
	}
	if !strings.Contains(end.Answer, "4") {
		t.Errorf("the answer is %q", end.Answer)
	}
	r.flush(nc)
	for len(answers) > 0 {
		if m := <-answers; bytes.Contains(m.Data, []byte("3+3")) {
			t.Errorf("the listener reads what another one said: %s", m.Data)
		}
	}
}

// A listener reads how its inputs end that begin no turn, and nothing about those of another one.
func TestAListenerReadsWhyItsInputsAreRefused(t *testing.T) {
	r := run(t)
	inputs := []string{
		`{"text":`, `{"text":"` + strings.Repeat("x", event.MaxTextBytes+1) + `"}`, `{"text":"hi","id":"once"}`,
		`{"text":"hi","id":"once"}`, `{"text":"hi"}`,
	}
	writers := []subject.Writer{"clock", "bell"}
	answers := map[subject.Writer]chan *nats.Msg{}
	sent := map[subject.Writer]map[uint64]bool{}
	for _, w := range writers {
		nc := r.plain(r.invite(rights.Charter{Name: subject.Identity(w), Listeners: []subject.Writer{w}}))
		answers[w], sent[w] = make(chan *nats.Msg, 256), map[uint64]bool{}
		if _, err := nc.ChanSubscribe(fmt.Sprintf("answer.%s.*.*.*.*", w), answers[w]); err != nil {
			t.Fatal(err)
		}
		r.flush(nc)
		for i, body := range inputs {
			agent := "main"
			if i == len(inputs)-1 {
				agent = "nobody"
			}
			m, err := nc.Request(fmt.Sprintf("agent.%s.shared.sense.input.%s", agent, w), []byte(body), natstest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			var ack struct{ Seq uint64 }
			if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Seq == 0 {
				t.Fatalf("not acknowledged: %s", m.Data)
			}
			sent[w][ack.Seq] = true
		}
	}
	for _, w := range writers {
		ends := map[uint64]string{}
		for len(ends) < len(inputs) {
			var e event.Event
			select {
			case m := <-answers[w]:
				if err := json.Unmarshal(m.Data, &e); err != nil {
					t.Fatal(err)
				}
			case <-time.After(natstest.Patience):
				t.Fatalf("%s has read of %d ends of %d: %v", w, len(ends), len(inputs), ends)
			}
			if err := (event.Visitor{
				Recorded:   func(p event.Recorded) { ends[p.Sequence] = "recorded" },
				TurnFailed: func(p event.TurnFailed) { ends[p.Sequence] = string(p.Code) },
			}).Visit(e); err != nil {
				t.Fatal(err)
			}
		}
		codes := map[string]int{}
		for seq, code := range ends {
			if codes[code]++; !sent[w][seq] {
				t.Errorf("%s reads of the end of %d, an input of another one", w, seq)
			}
		}
		if codes["malformed"] != 2 || codes["unknown_agent"] != 1 || codes["duplicate_of"] != 1 || codes["recorded"] != 1 {
			t.Errorf("the inputs of %s end as %v", w, codes)
		}
	}
}

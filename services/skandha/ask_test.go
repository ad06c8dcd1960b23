package main

import (
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// The terminal is refused like everybody else while too many inputs wait, though it is connected for too short a
// time to have heard of it.
func TestAQuestionBeyondTheLimitIsRefused(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, s)
	natstest.EnsureStreams(t, b)
	busy := coreapi.Status{Agents: []subject.Agent{"main"}, Faults: []coreapi.Fault{
		{What: coreapi.FaultOverload, Message: "overloaded: 21886 inputs wait, the limit is 10000"},
	}}
	_, err := b.Respond(subject.Service(coreapi.ServiceName, coreapi.VerbStatus), "", coreapi.ServiceName, func(q *bus.Request) {
		coreapi.Answer(q, func(*bus.Request) (any, error) { return busy, nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := says(t, "ask", "--nats", s.ClientURL(), "--token", s.Token(), "hello")
	if err == nil || !strings.Contains(all, "21886 inputs wait, the limit is 10000") {
		t.Errorf("%v\n%s", err, all)
	}
	if log, err := b.LogState(natstest.Context(t)); err != nil || log.Last != 0 {
		t.Errorf("the log has %+v, %v, want nothing", log, err)
	}
	for text, refused := range map[string]bool{"hello": true, "//hello": true, "/help": false, "/reset": false} {
		if err := overloaded(&busy, text); (err != nil) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := overloaded(nil, "hello"); err != nil {
		t.Errorf("without a core: %v", err)
	}
	if err := overloaded(&coreapi.Status{}, "hello"); err != nil {
		t.Errorf("while few wait: %v", err)
	}
}

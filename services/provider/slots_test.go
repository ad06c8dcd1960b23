package provider_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/provider"
	"skandha.dev/services/test/natstest"
)

func TestSlotsBoundQuestionsAtATime(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	gate := make(chan struct{})
	busy := careless{name: "busy", do: func(context.Context, func(string, string)) (contract.Response, error) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-gate
		mu.Lock()
		running--
		mu.Unlock()
		return contract.Response{TextContent: "done"}, nil
	}}
	c := start(t, provider.Config{Slots: 2}, busy)
	var finals []<-chan executor.Answer
	for i := range 6 {
		finals = append(finals, c.ask(question(t, fmt.Sprintf("p%d", i), "?")))
	}
	natstest.Eventually(t, "two at work", func() bool { mu.Lock(); defer mu.Unlock(); return running == 2 })
	close(gate)
	for _, f := range finals {
		if a := c.answer(f); a.Response == nil {
			t.Errorf("answer is %+v", a)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 2 {
		t.Errorf("%d questions at a time, want 2", most)
	}
}

func TestDrainLetsAQuestionFinish(t *testing.T) {
	c := start(t, provider.Config{DrainTimeout: natstest.Patience})
	final := c.ask(question(t, "p", "stream 20 words every 10 ms"))
	natstest.Eventually(t, "the first delta", func() bool { return len(c.deltas("p")) > 0 })
	c.stop()
	if a := c.answer(final); a.Response == nil || !strings.HasSuffix(a.Response.TextContent, "word20") {
		t.Errorf("answer is %+v", a)
	}
	release := executor.Request{Op: executor.OpRelease, Agent: "a", Session: "s", Call: "p", Attempt: "n1"}
	c.ask(release)
	select {
	case err := <-c.ended:
		if err != nil {
			t.Errorf("the service ended with %v", err)
		}
	case <-time.After(natstest.Patience):
		t.Error("the service does not end although everything is released")
	}
}

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/test/natstest"
)

func offerOf(names ...string) engine.Offer {
	var o engine.Offer
	for _, n := range names {
		o.Tools = append(o.Tools, tool.Spec{Name: n})
	}
	return o
}

func (c *core) awaitTools(what string, n int) {
	c.t.Helper()
	c.await(what, func(a contract.Announcement) bool { return len(a.Tools) == n })
}

func TestOffersHoldTheLastAlone(t *testing.T) {
	o := engine.NewOffers()
	var g sync.WaitGroup
	for i := range 50 {
		g.Go(func() { o.Put(offerOf(fmt.Sprint(i))) }) // nobody receives, and nobody is held up
	}
	g.Wait()
	o.Put(offerOf("last"))
	if got := <-o.Updates(); len(got.Tools) != 1 || got.Tools[0].Name != "last" {
		t.Fatalf("got %+v", got)
	}
	select {
	case more := <-o.Updates():
		t.Fatalf("and then %+v", more)
	default:
	}
}

// A storm of changes costs few announcements, and the last one wins.
func TestQuickChangesAreGathered(t *testing.T) {
	offers := engine.NewOffers()
	cfg := runner(nil)
	cfg.Updates = offers.Updates()
	c := start(t, cfg)
	c.forgetAnnouncements()
	const changes = 2000
	for i := range changes {
		names := make([]string, 10+i%7)
		for k := range names {
			names[k] = fmt.Sprintf("t%d-%d", i, k)
		}
		offers.Put(offerOf(names...))
	}
	offers.Put(offerOf("now", "block"))
	c.awaitTools("the last offer", 2)
	c.mu.Lock()
	n := len(c.heard)
	c.mu.Unlock()
	if n > changes/10 {
		t.Errorf("%d changes were %d announcements", changes, n)
	}
	for call, want := range map[string]contract.State{
		"now": contract.Finished, "t0-0": contract.Refused, "trace": contract.Refused,
	} {
		if a := c.final(c.send(run("c-"+call, call))); a.State != want {
			t.Errorf("%s: got %+v", call, a)
		}
	}
}

func TestACallGoesOnWhenItsToolIsNotOfferedAnyMore(t *testing.T) {
	gate := make(chan struct{})
	offers := engine.NewOffers()
	cfg := runner(gate)
	cfg.Updates = offers.Updates()
	c := start(t, cfg)
	running := c.send(run("c1", "block"))
	c.next(running) // it runs
	offers.Put(offerOf("now"))
	c.awaitTools("a smaller offer", 1)
	if a := c.final(c.send(run("c2", "block"))); a.State != contract.Refused || a.Reason != contract.RefusedUnknown {
		t.Fatalf("a new one: got %+v", a)
	}
	gate <- struct{}{}
	if a := c.final(running); a.State != contract.Finished || !a.Result.Success {
		t.Fatalf("the running one: got %+v", a)
	}
	if a := c.final(c.send(op(contract.OpAsk, "c1"))); a.State != contract.Finished {
		t.Fatalf("its result is kept: got %+v", a)
	}
}

func TestAnotherSchemaUnderTheSameName(t *testing.T) {
	offers := engine.NewOffers()
	cfg := runner(nil)
	cfg.Updates = offers.Updates()
	c := start(t, cfg)
	for _, args := range []string{`{"type":"object"}`, `{"properties":{"x":{}},"type":"object"}`} {
		offers.Put(engine.Offer{Tools: []tool.Spec{{Name: "now", Args: json.RawMessage(args), TimeoutMS: 1000}}})
		c.await(args, func(a contract.Announcement) bool { return len(a.Tools) == 1 && string(a.Tools[0].Args) == args })
	}
	if a := c.final(c.send(run("c1", "now"))); a.State != contract.Finished {
		t.Fatalf("got %+v", a)
	}
}

func TestAClosedChannelOfUpdatesLeavesTheOffer(t *testing.T) {
	updates := make(chan engine.Offer)
	cfg := runner(nil)
	cfg.Updates = updates
	c := start(t, cfg)
	close(updates)
	if a := c.final(c.send(run("c1", "now"))); a.State != contract.Finished {
		t.Fatalf("got %+v", a)
	}
}

// Work may report that it had no effect. That is a refusal, even after "running", and
// stays one.
func TestWorkThatDidNotRun(t *testing.T) {
	cfg := runner(nil)
	gate := make(chan struct{})
	cfg.Work = func(context.Context, contract.Request, func(string)) contract.Answer {
		<-gate
		a := engine.DidNotRun("nobody was there")
		a.Result = &tool.Result{Success: true} // counts for nothing
		return a
	}
	c := start(t, cfg)
	running := c.send(run("c1", "block"))
	if a := c.next(running); a.State != contract.Running {
		t.Fatalf("got %+v", a)
	}
	close(gate)
	a := c.final(running)
	if a.State != contract.Refused || a.Reason != contract.RefusedUnknown || a.Message != "nobody was there" ||
		a.Result != nil || a.DurationMS != 0 {
		t.Fatalf("got %+v", a)
	}
	natstest.Eventually(t, "the tombstone", func() bool {
		a := c.final(c.send(op(contract.OpAsk, "c1")))
		return a.State == contract.Refused && a.Reason == contract.RefusedUnknown
	})
	if a := c.final(c.send(run("c1", "now"))); a.State != contract.Refused {
		t.Fatalf("it ran after all: %+v", a)
	}
}

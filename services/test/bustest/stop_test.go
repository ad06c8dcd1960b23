package bustest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
)

// held is a service with one slot, whose requests are held until their contexts end, or the test lets
// them go.
type held struct {
	began chan string
	ended chan string // those whose contexts have ended
	letGo chan struct{}
}

func hold() *held {
	return &held{began: make(chan string, 8), ended: make(chan string, 8), letGo: make(chan struct{})}
}

func (h *held) handle(q *bus.Request) {
	h.began <- string(q.Data)
	select {
	case <-q.Context().Done():
		h.ended <- string(q.Data)
	case <-h.letGo:
		_ = q.Reply(q.Data)
	}
}

func TestACallerThatGivesUpEndsItsRequest(t *testing.T) {
	c, b, _ := pair(t)
	h := hold()
	do := subject.Service("slow", "do")
	respond(t, b, do, "slow", h.handle, bus.Concurrency(1), bus.Queue(2), bus.Stoppable())
	var wg sync.WaitGroup
	ask := func(body string) (giveUp func()) {
		ctx, cancel := context.WithCancel(natstest.Context(t))
		wg.Go(func() {
			if _, err := c.RequestOrStop(ctx, do, "slow", []byte(body)); !errors.Is(err, bus.ErrCancelled) {
				t.Errorf("%s: %v, want ErrCancelled", body, err)
			}
		})
		return cancel
	}
	first := ask("first")
	<-h.began
	waits := ask("waits") // it never begins, because it is given up before
	natstest.Eventually(t, "two requests are on their way", func() bool { return c.Waiting() == 2 })
	waits()
	natstest.Eventually(t, "the second one is given up", func() bool { return c.Waiting() == 1 })
	first()
	wg.Wait()
	if got := <-h.ended; got != "first" {
		t.Errorf("%s has ended", got)
	}
	close(h.letGo)
	got, err := c.Request(natstest.Context(t), do, "slow", []byte("next"))
	if err != nil || string(got) != "next" {
		t.Errorf("%q, %v", got, err)
	}
	if began := <-h.began; began != "next" || len(h.began) > 0 {
		t.Errorf("%s has begun, and %d more", began, len(h.began))
	}
}

// Only its caller and its responder know a request's reply subject; others do no harm.
func TestStopsOfOthersAreIgnored(t *testing.T) {
	c, b, _ := pair(t)
	do, h := subject.Service("slow", "do"), hold()
	respond(t, b, do, "slow", h.handle, bus.Stoppable())
	done := make(chan error, 1)
	go func() {
		_, err := c.RequestOrStop(natstest.Context(t), do, "slow", []byte("mine"))
		done <- err
	}()
	<-h.began
	for range 300 { // more than are kept for requests to come
		for _, body := range []string{`{"reply":"reply.me.slow.me-1.1"}`, `{"reply":"reply.me.other.me-1.1"}`, `{"reply":"*"}`, `{`, ``} {
			if err := b.Publish(natstest.Context(t), subject.Service("slow", bus.VerbStop), nil, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	close(h.letGo)
	if err := <-done; err != nil {
		t.Errorf("the request failed: %v", err)
	}
}

func TestRequestsBeyondTheQueueAreRefusedAtOnce(t *testing.T) {
	c, b, _ := pair(t)
	do, h := subject.Service("slow", "do"), hold()
	respond(t, b, do, "slow", h.handle, bus.Concurrency(1), bus.Queue(1))
	done := make(chan error, 3)
	for range cap(done) {
		go func() {
			_, err := c.Request(natstest.Context(t), do, "slow", []byte("x"))
			done <- err
		}()
	}
	if err := <-done; !errors.Is(err, bus.ErrOverloaded) {
		t.Errorf("the third request: %v, want ErrOverloaded", err)
	}
	close(h.letGo)
	for range cap(done) - 1 {
		if err := <-done; err != nil {
			t.Errorf("a request that waited: %v", err)
		}
	}
}

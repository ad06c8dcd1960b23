package registrar_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/test/natstest"
)

// A core that hangs is still a member of its queue group, and receives requests that
// it does not answer. However many hang, one healthy core keeps the leases.
func TestACoreThatHangsEndsNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, registrar.Config{Lease: short})
	hung := natstest.Connect(t, w.server)
	for range 40 {
		if _, err := hung.Conn().QueueSubscribeSync(subject.Registry(subject.Heartbeat, "*"),
			registrar.ServiceName); err != nil {
			t.Fatal(err)
		}
	}
	if err := hung.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	p := m("p")
	is(t, plugin.Active)(w.register(p, "p-1"))
	silent := m("silent")
	is(t, plugin.Active)(w.register(silent, "s-1")) // its end shows twice that a lease's time has passed
	for range 2 {
		natstest.Eventually(t, "a lease's time to pass", func() bool {
			ctx, cancel := context.WithTimeout(natstest.Context(t), short/8)
			defer cancel()
			body, err := json.Marshal(plugin.Heartbeat{Instance: "p-1", Hash: p.Hash()})
			if err == nil {
				_, err = w.c.Request(ctx, subject.Registry(subject.Heartbeat, p.Name), registrar.ServiceName, body)
			}
			if errors.Is(err, bus.ErrNotFound) {
				t.Fatalf("the lease has ended: %v", err)
			}
			return !w.cores[0].view.Snapshot().Active(silent.Name)
		})
		is(t, plugin.Active)(w.register(silent, "s-1"))
	}
	if !w.cores[0].view.Snapshot().Active(p.Name) {
		t.Error("the lease has ended")
	}
}

// Of all cores that receive a heartbeat, one writes, and each answers with the lease.
func TestEveryCoreAnswersAHeartbeat(t *testing.T) {
	w := newWorld(t, 3, steady)
	p := m("p")
	is(t, plugin.Active)(w.register(p, "p-1"))
	for _, c := range w.cores {
		c.eventually(t, "p:active")
	}
	body, err := json.Marshal(plugin.Heartbeat{Instance: "p-1", Hash: p.Hash()})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan bus.Reply, 9)
	forget, err := w.c.Send(natstest.Context(t), subject.Registry(subject.Heartbeat, p.Name), registrar.ServiceName, nil,
		body, func(r bus.Reply) { answers <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	for range w.cores {
		select {
		case r := <-answers:
			if r.Err != nil || !strings.Contains(string(r.Data), `"active"`) {
				t.Errorf("got %s, %v", r.Data, r.Err)
			}
		case <-time.After(natstest.Patience):
			t.Fatal("not every core has answered")
		}
	}
}

package hub_test

import (
	"slices"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// Clients are notified when the bus is away, and when it is back, and then what happened
// meanwhile; one that attaches later is not notified of it.
func TestAnOutageIsTold(t *testing.T) {
	w := newWorld(t, hub.Config{Outage: time.Millisecond}, nil)
	w.said("before")
	feeds := map[string]contract.Feed{
		"one": w.attach(contract.Attachment{}), "one with commits": w.attach(contract.Attachment{Commits: true}),
		"one from the beginning": w.attach(contract.Attachment{After: "0"}),
	}
	elsewhere, err := w.Attach(natstest.Context(t), contract.Attachment{Ref: other})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	feeds["one of another session"] = elsewhere
	seen := map[string][]bool{} // of the bus
	until := func(about string, enough func(contract.Notification) bool) {
		t.Helper()
		for {
			n := next(t, feeds[about])
			if n.Method == contract.OnBus {
				seen[about] = append(seen[about], decode[contract.Bus](t, n).Connected)
			}
			if enough(n) {
				return
			}
		}
	}
	ofBus := func(n contract.Notification) bool { return n.Method == contract.OnBus }
	w.link.cut()
	for about := range feeds {
		until(about, ofBus)
	}
	w.said("meanwhile")
	w.link.mend()
	last := w.ids[len(w.ids)-1]
	for about, f := range feeds {
		missed := f != elsewhere
		until(about, func(n contract.Notification) bool { // the log may be read before the notification
			missed = missed && n.ID != last
			return !missed && len(seen[about]) == 2
		})
		if !slices.Equal(seen[about], []bool{false, true}) {
			t.Errorf("%s was notified that the bus is connected: %v", about, seen[about])
		}
	}
	w.said("after")
	feeds["one that came later"] = w.attach(contract.Attachment{After: "0"})
	last = w.ids[len(w.ids)-1]
	until("one that came later", func(n contract.Notification) bool { return n.ID == last })
	if got := seen["one that came later"]; len(got) > 0 {
		t.Errorf("a feed that began later was notified of the bus: %v", got)
	}
}

// Feeds get the reason why the bus cannot store, even if they begin meanwhile, and are
// notified when it can store again.
func TestAStorageFaultIsTold(t *testing.T) {
	w := newWorld(t, hub.Config{}, nil)
	first := w.attach(contract.Attachment{})
	ofBus := func(f contract.Feed) contract.Bus {
		t.Helper()
		for {
			if n := next(t, f); n.Method == contract.OnBus {
				return decode[contract.Bus](t, n)
			}
		}
	}
	if err := w.client.Journal.Conn().Flush(); err != nil { // the beacon subscription is active
		t.Fatal(err)
	}
	if err := w.bus.PublishBeacon(natstest.Context(t),
		bus.Beacon{Storage: &bus.StorageFault{Reason: "no space left on device"}}); err != nil {
		t.Fatal(err)
	}
	const want = "the bus cannot store: no space left on device"
	if got := ofBus(first); !got.Connected || got.Fault != want {
		t.Fatalf("got %+v", got)
	}
	second := w.attach(contract.Attachment{})
	if got := ofBus(second); got.Fault != want {
		t.Errorf("a later feed got %+v", got)
	}
	for _, f := range []contract.Feed{first, second} {
		if got := ofBus(f); !got.Connected || got.Fault != "" {
			t.Errorf("then %+v", got)
		}
	}
}

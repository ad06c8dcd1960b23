package hub_test

import (
	"slices"
	"testing"
	"time"

	"skandha.dev/services/internal/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// People are told when the bus is away, and when it is back, and then what happened
// meanwhile; who attaches later is told nothing of it.
func TestAnOutageIsTold(t *testing.T) {
	w := newWorld(t, hub.Config{Outage: time.Millisecond}, nil)
	w.said("before")
	feeds := map[string]contract.Feed{
		"one": w.attach(contract.Attachment{}), "one with commits": w.attach(contract.Attachment{Commits: true}), "one from the beginning": w.attach(contract.Attachment{After: "0"}),
	}
	elsewhere, err := w.Attach(natstest.Context(t), contract.Attachment{Ref: other})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	feeds["one of another session"] = elsewhere
	told := map[string][]bool{} // of the bus
	until := func(about string, enough func(contract.Notification) bool) {
		t.Helper()
		for {
			n := next(t, feeds[about])
			if n.Method == contract.OnBus {
				told[about] = append(told[about], decode[contract.Bus](t, n).Connected)
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
		until(about, func(n contract.Notification) bool { // the log may be read before it is told that it can be
			missed = missed && n.ID != last
			return !missed && len(told[about]) == 2
		})
		if !slices.Equal(told[about], []bool{false, true}) {
			t.Errorf("%s was told that the bus is connected: %v", about, told[about])
		}
	}
	w.said("after")
	feeds["one that came later"] = w.attach(contract.Attachment{After: "0"})
	last = w.ids[len(w.ids)-1]
	until("one that came later", func(n contract.Notification) bool { return n.ID == last })
	if got := told["one that came later"]; len(got) > 0 {
		t.Errorf("a feed that began later was told of the bus %v", got)
	}
}

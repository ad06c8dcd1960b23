package backend_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// People are told when the bus is away, and when it is back; who attaches later is
// told nothing of it.
func TestAnOutageIsTold(t *testing.T) {
	r := start(t, hub.Config{Outage: time.Millisecond})
	one, two := session("outage"), session("outage-too")
	feeds := []*feed{r.attach(contract.Attachment{Ref: one}), r.attach(contract.Attachment{Ref: one, Commits: true}), r.attach(contract.Attachment{Ref: two})}
	for _, ref := range []subject.Ref{one, two} {
		r.say(ref, "hello")
	}
	for _, f := range feeds {
		f.await(contract.OnReadyForInput, 1)
	}
	if err := r.sys.RestartBus(300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, f := range feeds {
		f.await(contract.OnBus, 2)
	}
	for _, ref := range []subject.Ref{one, two} {
		r.say(ref, "hello again")
	}
	for _, f := range feeds {
		f.await(contract.OnReadyForInput, 2)
		var said []bool
		for _, n := range f.all() {
			if n.Method == contract.OnBus {
				var b contract.Bus
				if err := json.Unmarshal(n.Params, &b); err != nil {
					t.Fatal(err)
				}
				said = append(said, b.Connected)
			}
		}
		if !alternates(said) {
			t.Errorf("of the bus, it was told %v", said)
		}
	}
	late := r.attach(contract.Attachment{Ref: one, After: "0"})
	late.await(contract.OnReadyForInput, 2)
	if n := late.count(contract.OnBus); n != 0 {
		t.Errorf("a feed that began later was told of the bus %d times", n)
	}
}

// alternates reports whether it was away and back as often as it was away, in turns.
func alternates(connected []bool) bool {
	return len(connected)%2 == 0 && !slices.ContainsFunc(slices.Collect(slices.Chunk(connected, 2)), func(c []bool) bool { return c[0] || !c[1] })
}

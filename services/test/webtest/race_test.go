package webtest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/webtest"
)

// holdAnswers has a page keep back the answers that it is about to send, so that two
// pages have both answered before anybody hears of the other.
const holdAnswers = `(() => {
	const send = WebSocket.prototype.send;
	window.held = [];
	WebSocket.prototype.send = function (m) {
		if (m.includes('"provideConfirmation"')) held.push(() => send.call(this, m));
		else send.call(this, m);
	};
})()`

// Two people click at once, on separate pages. One of them wins, both pages show the
// same, and the call runs as many times as it was approved: once or never.
func TestTwoBrowsersRaceForOneApproval(t *testing.T) {
	const token = "a-second-owner-0123456789abcdefghijklm"
	t.Setenv("SECOND", token)
	r := webtest.Start(t, webtest.Options{
		Config: "policy: [{tool: 'bell:*', effect: confirm}]\n" +
			"ui: {tokens: [{name: second, token: 'env:SECOND', rights: [see, talk, approve]}]}\n",
	})
	var rung atomic.Int64
	r.Plug(plugin.Manifest{Name: "bell", Version: "1.0.0"}, "bell:ring",
		plugin.Tool("bell:ring", "Rings.",
			func(context.Context, struct{}) (string, error) { return fmt.Sprint("rung ", rung.Add(1)), nil }))
	pages := []*webtest.Page{r.SignedIn(t, "race"), r.WithToken(t, token, "race")}
	for _, p := range pages {
		webtest.Get[any](p, holdAnswers)
	}
	writers := []string{"ui-owner", "ui-second"}
	approved := int64(0)
	rounds := [][]string{{"approve", "approve"}, {"approve", "refuse"}, {"refuse", "approve"}, {"approve", "approve"}}
	for i, buttons := range rounds {
		pages[i%2].Say("call bell:ring {}")
		for j, p := range pages {
			p.Wait(fmt.Sprintf(`all(".ask").length === %d`, i+1))
			p.Click(".ask[data-open=true] .ask-" + buttons[j])
			p.Wait(`held.length === 1`)
		}
		var both sync.WaitGroup
		errs := make([]error, len(pages))
		for n := range pages {
			j := (n + i) % len(pages) // each may be the first
			both.Go(func() { _, errs[j] = webtest.Eval[any](pages[j], `held.pop()()`) })
		}
		both.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range pages {
			p.Wait(fmt.Sprintf(finished+` === %d`, i+1))
			p.Wait(`!one(".ask[data-open=true]")`)
		}
		decided := slices.DeleteFunc(r.Log("race"), func(e event.Event) bool { return e.Type != event.TypeActConfirmed })
		if len(decided) != i+1 {
			t.Fatalf("round %d: %d requests were decided, want each once", i, len(decided))
		}
		var how event.ActConfirmed
		if err := decided[i].DataAs(&how); err != nil {
			t.Fatal(err)
		}
		if how.Outcome == event.Approved {
			approved++
		}
		t.Logf("round %d: %s by %s", i, how.Outcome, how.By)
		for j, p := range pages {
			card := fmt.Sprintf(`all(".ask")[%d]`, i)
			who := string(how.By)
			if who == writers[j] {
				who = "you"
			}
			p.Wait(fmt.Sprintf(`%s.dataset.outcome === %q && %s.querySelector(".ask-outcome").innerText.includes("by %s")`, card,
				how.Outcome, card, who))
			late := fmt.Sprintf(`%s.innerText.includes("Your answer came later, and does not count.")`, card)
			if got, want := webtest.Get[bool](p, late), who != "you"; got != want {
				t.Errorf("round %d, %s: it says that the answer came too late: %v, want %v", i, writers[j], got, want)
			}
		}
		if n := rung.Load(); n != approved {
			t.Fatalf("round %d: it rang %d times, and was approved %d times", i, n, approved)
		}
	}
	pages[0].Shot("race-owner")
	pages[1].Shot("race-second")
}

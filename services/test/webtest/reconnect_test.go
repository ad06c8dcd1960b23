package webtest_test

import (
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/webtest"
)

// The bridge is killed in the middle of an answer, and while it is away something is
// typed, and something happens that it could not tell. When it is back, the page shows
// everything, each once, without being loaded again.
func TestABridgeThatWasKilledIsMissedForAMomentAlone(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Process: true, Config: asks})
	p := r.SignedIn(t, "killed")
	p.Expect(`WebSocket connection to|ERR_CONNECTION_REFUSED|Failed to load resource`)
	p.Say("hello")
	p.Wait(finished + ` === 1`)
	p.Say("stream 400 words every 15 ms")
	p.Wait(`text(".streaming").includes("word30 ")`)
	webtest.Get[int](p, `window.unbroken = 1`)
	r.Kill()
	p.Wait(`seen(".banner") && one(".state").dataset.state === "offline"`)
	p.Shot("offline")
	p.Say("typed while it was away")
	p.Wait(`text(".turn.sending").includes("waiting for the connection")`)
	p.Shot("offline-typed")
	r.Say("killed", "said elsewhere")
	r.Restart()
	p.Wait(`!seen(".banner") && ` + finished + ` === 4`)
	p.Wait(`text(".transcript").includes("echo: typed while it was away") && text(".transcript").includes("echo: said elsewhere")`)
	p.Wait(`one(".state").dataset.state === "waiting_for_input"`)
	if webtest.Get[bool](p, `window.unbroken !== 1`) {
		t.Error("the page was loaded again")
	}
	said := `all(".turn .said-text").map((e) => e.innerText).sort().join("|")`
	if got, want := webtest.Get[string](p,
		said), "hello|said elsewhere|stream 400 words every 15 ms|typed while it was away"; got != want {
		t.Errorf("what was said: %s, want %s", got, want)
	}
	words := `all(".turn").find((e) => e.innerText.includes("word1 ")).querySelector(".prose").innerText.trim().split(/\s+/)`
	if n := webtest.Get[int](p, words+`.length`); n != 400 {
		t.Errorf("the answer that was cut has %d words, want 400", n)
	}
	if n := webtest.Get[int](p, words+`.filter((w, i) => w !== "word" + (i + 1)).length`); n != 0 {
		t.Errorf("%d words of it are out of place", n)
	}
	p.Shot("reconnected")

	fresh := r.SignedIn(t, "killed") // what one would see who comes now
	fresh.Wait(finished + ` === 4`)
	shown := `all(".turn .said-text, .turn .prose").map((e) => e.innerText.trim()).join("\n")`
	if a, b := webtest.Get[string](p, shown), webtest.Get[string](fresh, shown); a != b {
		t.Errorf("the page that was there shows\n%s\na fresh one\n%s", a, b)
	}
}

// A request that was answered elsewhere while the bridge was away is not offered again.
func TestADecisionThatFellWhileTheBridgeWasAway(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "away")
	p.Expect(`WebSocket connection to|ERR_CONNECTION_REFUSED|Failed to load resource`)
	p.Say(`call notes:add {"text": "x"}`)
	p.Wait(`one(".ask-approve:not(:disabled)")`)
	r.Kill()
	p.Wait(`one(".ask-approve:disabled")`) // nothing can be sent, so nothing can be clicked
	p.Wait(`text(".banner").includes("Connection lost; reconnecting") && !seen(".composer-notice")`)
	p.Shot("offline-decision")
	r.Answer("away", false, "decided elsewhere")
	r.Restart()
	p.Wait(`one(".ask[data-outcome=denied]") && text(".ask-outcome").includes("decided elsewhere") && !seen(".ask button")`)
	p.Wait(`text(".ask-outcome").includes("ui-elsewhere") && !seen(".banner, .composer-notice")`)
}

// When the bridge is there and the bus is not, the page says so, keeps what is typed,
// and goes on by itself.
func TestTheBusIsAway(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "outage")
	p.Say("hello")
	p.Wait(finished + ` === 1`)
	p.Note("away", `seen(".banner-away") && text(".banner-away").includes("lost its connection to the bus")`)
	away := make(chan error, 1)
	go func() { away <- r.System.RestartBus(3 * time.Second) }()
	p.Noted("away")
	p.Shot("outage")
	p.Say("typed while the bus was away")
	if err := <-away; err != nil {
		t.Fatal(err)
	}
	p.Wait(`!seen(".banner-away") && ` + finished +
		` === 2 && text(".transcript").includes("echo: typed while the bus was away")`)
}

// While the bus cannot store, the page shows why, keeps what is typed, and recovers by
// itself.
func TestTheBusCannotStore(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "full")
	p.Say("hello")
	p.Wait(finished + ` === 1`)
	b, err := r.System.Connect(t.Context(), "core")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	mended, done := make(chan struct{}), make(chan struct{})
	go func() { // a core repeats it for as long as it lasts
		defer close(done)
		tick := time.NewTicker(bus.BeaconEvery)
		defer tick.Stop()
		for {
			_ = b.PublishBeacon(t.Context(),
				bus.Beacon{
					Storage: &bus.StorageFault{Reason: "no space left on device; free some where nats-server keeps its streams"},
				})
			select {
			case <-mended:
				return
			case <-tick.C:
			}
		}
	}()
	p.Wait(`seen(".banner-away.banner-danger") && text(".banner-away").includes("no space left on device")`)
	p.Say("typed while the disk was full")
	p.Wait(`text(".turn.sending").includes("waiting")`)
	p.Shot("storage-fault")
	close(mended)
	<-done
	p.Wait(`!seen(".banner-away") && ` + finished +
		` === 2 && text(".transcript").includes("echo: typed while the disk was full")`)
}

// The log is replaced beneath an open page: the page shows what the new one holds, and
// goes on by itself.
func TestTheLogIsReplaced(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "replaced")
	p.Expect(`WebSocket connection to`)
	p.Say("said before")
	p.Wait(finished + ` === 1`)
	b, err := r.System.Connect(t.Context(), "eraser") // which may do everything
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.JetStream().DeleteStream(t.Context(), bus.StreamSessions); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b)
	p.Wait(`all(".turn").length === 0 && ["locked", "waiting_for_input"].includes(one(".state").dataset.state)`)
	p.Say("said after")
	// A core that knew the old log locks the session first.
	p.Wait(`all(".turn").length === 1 && (text(".turn").includes("The session is locked") || ` + finished + ` === 1)`)
}

package webtest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/webtest"
	"skandha.dev/services/test/xss"
)

// reports reports a listener, as its process does.
func reports(t *testing.T, r *webtest.Rig, l senses.Report) {
	t.Helper()
	l.Since, l.At, l.Instance = time.Now().UTC().Add(-time.Hour), time.Now().UTC(), cmp.Or(l.Instance, "listener-1")
	if err := senses.Put(natstest.Context(t), r.Bus, l); err != nil {
		t.Fatal(err)
	}
}

// keepsReporting reports a listener again and again, as a process does: what is sent, until it is closed.
func keepsReporting(t *testing.T, r *webtest.Rig, l senses.Report) chan<- senses.Report {
	t.Helper()
	reports(t, r, l)
	next := make(chan senses.Report)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(l.Interval())
		defer tick.Stop()
		for ok := true; ok; {
			select {
			case <-t.Context().Done():
				return
			case <-tick.C:
			case l, ok = <-next:
			}
			if !ok {
				return
			}
			l.At, l.Instance = time.Now().UTC(), cmp.Or(l.Instance, "listener-1")
			if err := senses.Put(t.Context(), r.Bus, l); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
	}()
	return next
}

// stuck puts a message into the outbox that was given up, or that waits for a listener which is not
// running.
func stuck(t *testing.T, r *webtest.Rig, n int, state, text, why string) {
	t.Helper()
	id := fmt.Sprintf("irc.3b644de377c32c78.%020d-000", n)
	body, err := json.Marshal(map[string]any{
		"agent": "main", "session": "kitchen", "via": "irc", "key": "k", "state": state, "error": why, "attempts": n,
		"stored": time.Now().UTC().Add(-time.Hour), "delay": time.Now().UTC().Add(time.Hour), // so its wait is no problem
		"delivery": map[string]any{"kind": "notice", "to": "#ops", "text": text},
	})
	if err == nil {
		_, err = r.Bus.Bucket(journal.BucketOutbox).Put(natstest.Context(t), id, body, journal.Fence{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

const (
	listeners   = `all("#panel-system .listener-card")`
	undelivered = `all("#panel-system .undelivered-card")`
)

// An operator sees in the header that something is wrong, looks at it, sends one message again,
// drops another, and switches a camera off.
func TestAnOperatorDecidesAboutMessagesAndCameras(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	p.Wait(`one(".welcome")`)
	p.Press("Alt+6")
	p.Wait(`text("#panel-system").includes("No listener is running") && text("#panel-system").includes("Everything is delivered") && !seen(".faults")`)
	hall := keepsReporting(t, r, senses.Report{
		Listener: "hall", Kind: "camera", State: "ok", Media: senses.MediaCamera, On: true, Recording: true,
	})
	reports(t, r, senses.Report{Listener: "irc", Kind: "irc", State: "degraded", Reason: "not in #ops"})
	stuck(t, r, 2, "waiting", "The second.", "")
	stuck(t, r, 3, "dead", "The third.", "no such channel")
	p.Wait(listeners + `.length === 2 && ` + listeners + `[1].innerText.includes("not in #ops") && text(".light") === "recording"`)
	p.Wait(undelivered + `.length === 2 && ` + undelivered + `[0].innerText.includes("no such channel") && text("#panel-system").includes("1 given up, 1 waiting")`)
	p.Wait(`text(".topbar .faults") === "1 problem" && text(".system-faults").includes("1 message to people was given up")`)
	p.Shot("system")
	audited(t, p, "system")
	p.Prefer("dark", true)
	p.Shot("system-dark")

	p.Click(".switch")
	p.Wait(`one(".switch").getAttribute("aria-checked") === "false" && text(".listener-media").includes("Switched off by you") && text(".light") === "switched off, not confirmed by listener-1"`)
	switches, err := senses.Switches(natstest.Context(t), r.Bus)
	if err != nil {
		t.Fatal(err)
	}
	hall <- senses.Report{
		Listener: "hall", Kind: "camera", State: "ok", Media: senses.MediaCamera, Follows: switches["hall"].Revision,
	}
	p.Wait(`text(".light") === "not recording" && text(".listener-media").includes("It is switched off.")`)
	other := keepsReporting(t, r, senses.Report{
		Listener: "hall", Kind: "camera", State: "ok", Media: senses.MediaCamera, On: true, Recording: true, Instance: "listener-2",
	})
	p.Wait(listeners + `.length === 3 && all(".light").map((l) => l.innerText).join() === "not recording,switched off, not confirmed by listener-2"`)
	close(other) // it is not heard of any more
	p.Wait(`all(".light")[1].innerText.startsWith("switched off, not confirmed by listener-2, last heard ")`)
	if err := senses.Remove(natstest.Context(t), r.Bus, "hall", "listener-2"); err != nil {
		t.Fatal(err)
	}
	p.Wait(listeners + `.length === 2`)

	p.Click(`.undelivered-card[data-state="dead"] [data-op="resend"]`)
	p.Wait(`document.activeElement.innerText === "Send it again" && text(".undelivered-card .plugin-ask").includes("twice")`)
	p.Shot("system-resend")
	audited(t, p, "sending again")
	p.Press("Escape")
	p.Wait(`document.activeElement.dataset.op === "resend"`)
	p.Press("Enter")
	p.Press("Enter")
	p.Wait(`!one('.undelivered-card[data-state="dead"]') && text("#panel-system").includes("2 waiting.")`)
	p.Wait(`!seen(".faults") && !seen(".system-faults")`)
	for left := 1; left >= 0; left-- {
		p.Click(`.undelivered-card [data-op="drop"]`)
		p.Click(`.undelivered-card .plugin-ask .btn-danger`)
		p.Wait(fmt.Sprintf(undelivered+`.length === %d`, left))
	}
	p.Wait(`text("#panel-system").includes("Everything is delivered") && document.activeElement.id === "system-outbox"`)

	stuck(t, r, 4, "dead", "The fourth.", "no such channel")
	p.Size(390, 800)
	p.Wait(`seen(".system-faults")`)
	report(t, "390 px, system", p.Audit())
	p.Shot("system-narrow")
	p.Press("Escape")
	p.Wait(`text(".topbar .faults") === "1 problem"`)
	report(t, "390 px, a problem", p.Audit())
	p.Shot("system-narrow-header")
	p.Click(".faults")
	p.Wait(undelivered + `.length === 1`)
}

// A token with only the right "see" can look, and decides nothing; texts from outside do nothing on
// the page.
func TestTheSystemOnThePageIsHarmless(t *testing.T) {
	const token = "a-token-that-looks-0123456789abcdefghij"
	t.Setenv("LOOKER", token)
	r := webtest.Start(t,
		webtest.Options{Config: "ui: {tokens: [{name: looker, token: 'env:LOOKER', rights: [see]}]}\n"})
	for i, v := range xss.Vectors() {
		if i < 30 {
			reports(t, r, senses.Report{
				Listener: subject.Writer(fmt.Sprintf("l%d", i)), Kind: v, State: "down", Reason: v, Media: senses.MediaCamera, Agent: "main",
			})
			stuck(t, r, i+1, "dead", v, v)
		}
	}
	if _, err := senses.Turn(context.WithoutCancel(t.Context()), r.Bus, "l0", true, "<img src=x onerror=alert(1)>"); err != nil {
		t.Fatal(err)
	}
	p := r.WithToken(t, token, "xss")
	openPanel(p, "system")
	p.Wait(listeners + `.length === 30 && ` + undelivered + `.length === 30`)
	harmless(t, p, "the system")
	if webtest.Get[bool](p, `Boolean(one("#panel-system .switch, #panel-system [data-op]"))`) {
		t.Error("a token with only the right to see has buttons that change")
	}
}

// An operator sees who from outside is connected and what it may do, and ends that: at once, as the other side sees.
func TestAnOperatorRevokesAnIdentity(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	p.Press("Alt+6")
	p.Wait(`text("#panel-system").includes("Nobody is invited")`)
	ctx := natstest.Context(t)
	at, err := r.System.Invite(ctx, rights.Charter{
		Name: "bell", Listeners: []subject.Writer{"bell"}, Agents: []subject.Agent{"main"}, Hooks: []string{"before_act:judge"},
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	nc, err := nats.Connect("nats://"+u.Host, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
		nats.UserJWT(func() (string, error) { return u.User.Username(), nil }, func([]byte) ([]byte, error) { return nil, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	const card = `one("#panel-system .identity-card")`
	p.Wait(card + `?.innerText.includes("connected") && ` + card + `.innerText.includes("listener bell") && ` + card +
		`.innerText.includes("hooks before_act:judge") && text("#panel-system").includes("1 of 1 connected.")`)
	p.Shot("identities")
	audited(t, p, "identities")
	p.Click(`[aria-label="Revoke bell…"]`)
	p.Wait(`document.activeElement.innerText === "Revoke it"`)
	p.Press("Escape")
	p.Wait(`document.activeElement.getAttribute("aria-label") === "Revoke bell…"`)
	p.Press("Enter")
	p.Press("Enter")
	p.Wait(card + `.dataset.state === "revoked" && ` + card + `.innerText.includes("Revoked just now") && !one('[aria-label="Revoke bell…"]')`)
	select {
	case <-gone:
	case <-time.After(natstest.Patience):
		t.Error("it is still connected")
	}
}

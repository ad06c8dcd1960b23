package webtest_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/memory"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/webtest"
	"skandha.dev/services/test/xss"
)

// remember stores memories of the agent main, which a test's page shows.
func remember(t *testing.T, r *webtest.Rig, list ...coreapi.MemoryQuery) {
	t.Helper()
	c, err := client.New(r.Bus, "ui-ann", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		q.Op, q.Agent, q.Caller = coreapi.MemoryStore, "main", "ui-ann"
		if err := c.Administer(natstest.Context(t), coreapi.VerbMemory, q, &coreapi.MemoryAnswer{}); err != nil {
			t.Fatal(err)
		}
	}
}

const rows = `all("#panel-memory .memory-card")`

// A person looks at what the agent remembers, finds something in it, corrects, pins, adds and
// forgets, by keyboard where a mouse is not needed.
func TestWhatAnAgentRemembersIsCorrected(t *testing.T) {
	r := webtest.Start(t, // turns leave nothing, so that the memories are those of the test
		webtest.Options{Config: "agents: {main: {guide: {memory_policy: sliding-window}}}\n"})
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	p.Wait(`one(".welcome")`)
	p.Press("Alt+5")
	p.Wait(`text("#panel-memory").includes("remembers nothing yet") && text("#panel-memory").includes("memory_policy: vector-db")`)
	p.Shot("memory-empty")
	remember(t, r,
		coreapi.MemoryQuery{ID: "tea", Text: "Ann likes green tea."},
		coreapi.MemoryQuery{ID: "mia", Text: "Mia is allergic to nuts.", Kind: memory.Note},
		coreapi.MemoryQuery{ID: "page", Text: "Cheapest tea: 3 €.", Source: &memory.Source{
			Origin: memory.FromWeb, URL: "https://shop.example/tea", Principal: "ui-owner", Session: "kitchen", Turn: "t7",
		}})
	p.Say("hello") // after a turn, the list is loaded again
	p.Wait(rows + `.length === 3 && text("#panel-memory").includes("Search is by words alone")`)
	p.Wait(rows + `[0].innerText.includes("from outside") && ` + rows + `[0].innerText.includes("https://shop.example/tea, asked by you")`)
	p.Shot("memory")

	p.Click(`.memory-card:last-child [data-op="correct"]`)
	p.Wait(`document.activeElement.value === "Ann likes green tea."`)
	webtest.Get[bool](p, `(document.activeElement.value = "Ann likes black tea.", true)`)
	p.Press("Ctrl+Enter")
	p.Wait(rows + `[2].innerText.includes("black tea") && document.activeElement.dataset.op === "correct"`)
	p.Click(`.memory-card:last-child [data-op="pin"]`)
	p.Wait(`text(".memory-card:last-child .chip-accent") === "pinned" && document.activeElement.innerText === "Unpin"`)

	p.Type(`#panel-memory input[type="search"]`, "tea")
	p.Wait(rows + `.length === 2 && text("#panel-memory").includes("2 found.") && text("#panel-memory").includes("by words")`)
	p.Click(`.memory-card [data-op="forget"]`)
	p.Press("Escape")
	p.Wait(`!seen(".memory-card .plugin-ask") && document.activeElement.dataset.op === "forget"`)
	p.Press("Enter")
	p.Wait(`text(".memory-card .plugin-ask").includes("cannot be restored") && document.activeElement.innerText === "Forget it"`)
	p.Shot("memory-forget")
	audited(t, p, "memory")
	p.Click(".memory-card .plugin-ask .btn-danger")
	p.Wait(rows + `.length === 1 && document.activeElement.dataset.op === "pin"`)

	kind := func(name string) {
		webtest.Get[bool](p, `(one("#panel-memory select").value = "`+name+
			`", one("#panel-memory select").dispatchEvent(new Event("change")))`)
	}
	webtest.Get[bool](p, `(one('#panel-memory input[type="search"]').value = "", true)`)
	kind("note")
	p.Wait(rows + `.length === 1 && text(".memory-card").includes("Mia")`)
	kind("")
	p.Click(".memory-add summary")
	p.Type(".memory-add textarea", "The bins go out on Mondays.")
	p.Press("Ctrl+Enter")
	p.Wait(rows + `.length === 3 && text(".memory-card").includes("Mondays") && text(".memory-card").includes("Said by you")`)
}

// Texts from outside do nothing on the page, and a token with only the right "see" changes
// nothing.
func TestMemoriesOnThePageAreHarmless(t *testing.T) {
	const token = "a-token-that-looks-0123456789abcdefghij"
	t.Setenv("LOOKER", token)
	r := webtest.Start(t,
		webtest.Options{Config: "ui: {tokens: [{name: looker, token: 'env:LOOKER', rights: [see]}]}\n"})
	corpus := strings.ReplaceAll(strings.Join(xss.Vectors(), "\n\n"), "\x00", "")
	for len(corpus) > memory.MaxText {
		corpus = corpus[:strings.LastIndex(corpus, "\n\n")]
	}
	remember(t, r, coreapi.MemoryQuery{ID: picture, Text: corpus, Source: &memory.Source{
		Origin: memory.FromWeb, URL: "javascript:alert(1)", Tool: "web:fetch",
	}})
	p := r.SignedIn(t, "xss")
	openPanel(p, "memory")
	p.Wait(rows + `.length === 1`)
	p.Click(".memory-text .link-btn")
	p.Wait(`text(".memory-text").includes("<script>alert(1)</script>") && text(".memory-text .link-btn") === "Show less"`)
	harmless(t, p, "a memory")
	p.Click(`[data-op="correct"]`)
	harmless(t, p, "its correction")

	q := r.WithToken(t, token, "xss")
	openPanel(q, "memory")
	q.Wait(rows + `.length === 1`)
	if webtest.Get[bool](q, `Boolean(one("#panel-memory [data-op], #panel-memory .memory-add"))`) {
		t.Error("a token with only the right to see has buttons that change")
	}
	p.Size(320, 640)
	report(t, "320 px, memory", p.Audit())
}

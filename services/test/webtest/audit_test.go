package webtest_test

import (
	"testing"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/webtest"
)

const entries = `all("#panel-audit .audit-card")`

// A person who may administer sees who did what, and that the chain is intact.
func TestThePageShowsTheAuditLog(t *testing.T) {
	const token = "a-token-that-looks-0123456789abcdefghij"
	t.Setenv("LOOKER", token)
	r := webtest.Start(t, webtest.Options{Config: "ui: {tokens: [{name: looker, token: 'env:LOOKER', rights: [see, talk]}]}\n"})
	remember(t, r, coreapi.MemoryQuery{ID: "tea", Text: "Ann likes <b>tea</b>."})
	p := r.SignedIn(t, "kitchen")
	p.Size(1500, 1000)
	p.Wait(`one(".welcome")`)
	p.Say("hello <script>alert(1)</script>")
	p.Press("Alt+7")
	p.Wait(entries + `.some((e) => e.innerText.includes("asked") && e.innerText.includes("hello <script>"))`)
	p.Wait(entries + `.some((e) => e.innerText.includes("remembered") && e.innerText.includes("memory tea"))`)
	p.Wait(`text("#panel-audit .audit-chain").includes("intact")`)
	p.Shot("audit")
	audited(t, p, "audit")
	harmless(t, p, "the audit log")

	webtest.Get[bool](p, `(one("#panel-audit select").value = "remembered", one("#panel-audit select").dispatchEvent(new Event("change")))`)
	p.Wait(entries + `.length === 1 && text(".audit-card").includes("memory tea")`)
	p.Type(`#panel-audit input[type="search"]`, "nobody")
	p.Wait(`text("#panel-audit").includes("No entry matches.")`)
	p.Size(320, 640)
	report(t, "320 px, audit", p.Audit())

	q := r.WithToken(t, token, "kitchen")
	q.Wait(`one("#tab-system")`)
	if webtest.Get[bool](q, `Boolean(one("#tab-audit"))`) {
		t.Error("a token without the right to administer has the tab")
	}
}

package webtest_test

import (
	"strings"
	"testing"

	"skandha.dev/services/test/webtest"
)

// Two agents share a task: the list of sessions shows them below it, each call leads to its session, and the
// timeline of the turn has what they did.
func TestSubAgentsAreDrawnAsATree(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: `
agents:
  main:
    team: {agents: [helper], depth: 2}
  helper:
    team: {agents: [helper], depth: 2}
`})
	p := r.SignedIn(t, "boss")
	p.Size(1500, 950)
	openPanel(p, "timeline")
	p.Say(`plan {"steps": [
		{"id": "a", "tool": "agent:delegate", "params": {"task": "call math:evaluate {\"expression\": \"2+3\"}"}},
		{"id": "b", "tool": "agent:delegate", "params": {"task": "call agent:delegate {\"task\": \"call math:evaluate {\\\"expression\\\": \\\"7*6\\\"}\"}"}}]}`)
	p.Wait(`all(".turn-row").length === 1 && text(".turn-row").includes("answered")`)
	p.Wait(`all(".session-below").length === 3`)
	depths := webtest.Get[[]string](p, `all(".sessions li").map((li) => li.style.getPropertyValue("--depth") || "0")`)
	if got := strings.Join(depths, ""); got != "0112" && got != "0121" {
		t.Errorf("the sessions are drawn at the depths %s", got)
	}
	p.Click(".turn-row")
	p.Wait(`all('.wf-row[data-kind="step"]').filter((r) => r.innerText.includes("math:evaluate")).length === 2`)
	p.Shot("agents-timeline")
	if links := webtest.Get[int](p, `all('.call a[href^="#/helper/boss_"]').length`); links != 2 {
		t.Errorf("%d calls lead to their sessions", links)
	}
	p.Click(`.call a[href^="#/helper/boss_"]`)
	p.Wait(`location.hash.startsWith("#/helper/boss_") && text(".conversation, main").includes("call ")`)
	p.Shot("agents-below")
}

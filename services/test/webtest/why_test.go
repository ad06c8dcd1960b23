package webtest_test

import (
	"testing"

	"skandha.dev/services/test/webtest"
)

// A call says which tools were considered for it, with the factors of their scores.
func TestTheCallSaysWhyItsToolWasChosen(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Config: "agents: {main: {shortlist: 3}}"})
	p := r.SignedIn(t, "why")
	p.Say(`call math:evaluate {"expression":"6*7"}`)
	p.Wait(`one('.call[data-tool="math:evaluate"]').dataset.status === "done"`)
	p.Wait(`one(".call-why") !== null && !one(".call-why").open`)
	webtest.Get[bool](p, `(one(".call-fold").open = true, one(".call-why > summary").click(), true)`)
	p.Wait(`one(".call-why").open && text(".call-why").includes("It was shown")`)
	p.Wait(`[...one(".why-table tbody").rows].some((row) => row.className === "why-this" && row.textContent.includes("math:evaluate"))`)
	p.Wait(`one(".why-table thead tr").cells.length === 7`)
	p.Shot("why")
	q := r.SignedIn(t, "why") // it is in the log
	q.Wait(`one(".call-why") !== null`)
}

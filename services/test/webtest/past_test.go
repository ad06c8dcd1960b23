package webtest_test

import (
	"strconv"
	"strings"
	"testing"

	"skandha.dev/services/test/webtest"
)

// A past of any length can be shown, some turns at a time.
func TestALongPastIsToldFurtherAndFurtherBack(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	r.Fill(2, 125, "long")
	p := r.SignedIn(t, "long1")
	// A turn out of sight is not laid out, and has no innerText.
	const shown = `all(".turn").map((t) => t.textContent.match(/number (\d+)/)?.[1] ?? "nothing").join(" ")`
	upTo := func(first int) string {
		var all []string
		for n := first; n <= 125; n++ {
			all = append(all, strconv.Itoa(n))
		}
		return shown + ` === "` + strings.Join(all, " ") + `" && ` + finished + ` === all(".turn").length`
	}
	p.Wait(upTo(86) + ` && seen(".earlier")`)
	p.Click(".earlier")
	p.Wait(upTo(6) + ` && seen(".earlier")`)
	p.Click(".earlier")
	p.Wait(upTo(1) + ` && !seen(".earlier")`)
}

func TestManySessionsAreListedFurtherAndFurtherBack(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	r.Fill(203, 1, "many")
	p := r.SignedIn(t, "many203")
	// Sessions that were used within the same millisecond may be in either order.
	listed := func(n int) string {
		return `new Set(all(".session").map((s) => s.getAttribute("href"))).size === ` + strconv.Itoa(n)
	}
	for _, n := range []int{50, 100, 150, 200} {
		p.Wait(listed(n))
		p.Click(".sessions-more")
	}
	p.Wait(listed(203) + ` && !one(".sessions-more")`)
}

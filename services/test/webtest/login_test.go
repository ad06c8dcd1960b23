package webtest_test

import (
	"strings"
	"testing"

	"skandha.dev/services/test/webtest"
)

func TestAOneTimeCodeOpensThePageAndLeavesTheAddress(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	link := r.Link()
	p := r.Page(t)
	p.Open(link)
	p.Wait(`one("#input")`)
	if at := webtest.Get[string](p, `location.href`); strings.Contains(at, "code=") {
		t.Errorf("the code is still in the address: %s", at)
	}
	if n := webtest.Get[int](p, `document.cookie.length`); n != 0 {
		t.Errorf("the page's script can read %d bytes of cookies, want none", n)
	}

	again := r.Page(t) // another browser, the same link
	again.Expect(`401 .*/v1/auth/code$`)
	again.Open(link)
	again.Wait(`one("#token")`)
	again.Wait(`text("#login-problem").includes("already used")`)
	if at := webtest.Get[string](again, `location.href`); strings.Contains(at, "code=") {
		t.Errorf("the used code is still in the address: %s", at)
	}
	again.Shot("login-used-link")
}

func TestATokenIsPastedAndStaysInTheBrowser(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.Page(t)
	p.Expect(`401 .*/v1/auth/token$`)
	p.Open("/")
	p.Wait(`document.activeElement === one("#token")`)
	p.Shot("login")
	p.Type("#token", "wrong-"+r.Token)
	p.Press("Enter")
	p.Wait(`text("#login-problem").includes("unknown")`)
	p.Shot("login-wrong-token")
	p.Wait(`getSelection && document.activeElement === one("#token") && one("#token").selectionEnd > 0`)
	p.Type("#token", r.Token) // the wrong one is selected, so this replaces it
	p.Press("Enter")
	p.Wait(`one("#input")`)
	p.Open("/")
	p.Wait(`one("#input")`) // nobody is asked again

	// The cookie alone, which every port of this host gets to see, is no login.
	webtest.Get[bool](p, `(localStorage.removeItem("skandha.key"), true)`)
	p.Open("/")
	p.Wait(`one("#token")`)
	if got := webtest.Get[int](p, `fetch("/v1/auth/me").then((r) => r.status)`); got != 401 {
		t.Errorf("the cookie alone is answered %d, want 401", got)
	}
	p.Type("#token", r.Token)
	p.Press("Enter")
	p.Wait(`one("#input")`)

	p.Click(".rail-foot [aria-label='Sign out']")
	p.Wait(`one("#token")`)
	p.Open("/")
	p.Wait(`one("#token")`)
}

package inspect_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

func TestArtifactsAreServedWithCare(t *testing.T) {
	w := newWorld(t)
	ctx := natstest.Context(t)
	png := []byte("\x89PNG\r\n\x1a\n and so on")
	for name, data := range map[string][]byte{
		"main/kitchen/t1-p1-c0/x/a plot.png": png,
		"main/kitchen/page.html":             []byte("<!doctype html><script>alert(1)</script>"),
		"main/kitchen/../odd":                []byte("odd"),
		"main/kitchen2/no":                   []byte("another session's"), "other/kitchen/no": []byte("another agent's"),
	} {
		if err := w.client.Journal.PutArtifact(ctx, name, data); err != nil {
			t.Fatal(err)
		}
	}
	list := call[[]inspect.ArtifactInfo](w, "listArtifacts", names{Agent: "main", Session: "kitchen"})
	if len(list) != 3 {
		t.Fatalf("listed: %+v", list)
	}
	get := func(p contract.Principal, method, url string, header ...string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(contract.WithPrincipal(ctx, p), method, url, nil)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		rec := httptest.NewRecorder()
		w.artifacts.ServeHTTP(rec, r)
		return rec
	}
	for _, a := range list {
		res := get(ada, http.MethodGet, a.URL)
		if res.Code != http.StatusOK || res.Header().Get("X-Content-Type-Options") != "nosniff" ||
			res.Header().Get("Content-Security-Policy") != "sandbox; default-src 'none'" || res.Header().Get("ETag") == "" {
			t.Errorf("%s at %s: %d %v", a.Name, a.URL, res.Code, res.Header())
		}
		shown := strings.HasSuffix(a.Name, ".png")
		if d := res.Header().Get("Content-Disposition"); strings.HasPrefix(d, "inline") != shown ||
			res.Header().Get("Content-Type") == "image/png" != shown {
			t.Errorf("%s: %s, %s", a.Name, d, res.Header().Get("Content-Type"))
		}
		if again := get(ada, http.MethodGet, a.URL, "If-None-Match",
			res.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", a.Name, again.Code)
		}
	}
	const base = "/v1/agents/main/sessions/kitchen/artifacts/"
	if part := get(ada, http.MethodGet, base+"t1-p1-c0/x/a%20plot.png", "Range",
		"bytes=1-3").Body.String(); part != "PNG" {
		t.Errorf("a range: %q", part)
	}
	if d := get(ada, http.MethodGet,
		base+
			"t1-p1-c0/x/a%20plot.png?download").Header().Get("Content-Disposition"); d != `attachment; filename="a plot.png"` {
		t.Errorf("a download: %s", d)
	}
	bob := contract.Principal{Name: "bob", Rights: []contract.Right{contract.See}, Agents: []subject.Agent{"other"}}
	blind := contract.Principal{Name: "blind", Rights: []contract.Right{contract.Talk}}
	for _, c := range []struct {
		who  contract.Principal
		url  string
		want int
	}{
		{ada, base + "nothing", http.StatusNotFound},
		{ada, base, http.StatusBadRequest},
		{ada, base + "?name=../kitchen2/no", http.StatusNotFound},
		{ada, base + "%2e%2e%2fkitchen2%2fno", http.StatusNotFound},
		{ada, base + "?name=%ff", http.StatusBadRequest},
		{ada, base + "?name=" + strings.Repeat("x", 2000), http.StatusBadRequest},
		{ada, "/v1/agents/ma.in/sessions/kitchen/artifacts/x", http.StatusBadRequest},
		{ada, "/v1/agents/main/sessions/*/artifacts/x", http.StatusBadRequest},
		{bob, base + "page.html", http.StatusForbidden},
		{blind, base + "page.html", http.StatusForbidden},
		{contract.Principal{}, base + "page.html", http.StatusForbidden},
	} {
		res := get(c.who, http.MethodGet, c.url)
		if res.Code != c.want && (c.want != http.StatusNotFound || res.Code/100 != 3) {
			t.Errorf("%s for %q: %d, want %d", c.url, c.who.Name, res.Code, c.want)
		}
		if res.Code == http.StatusOK || res.Header().Get("X-Content-Type-Options") != "nosniff" && res.Code/100 != 3 {
			t.Errorf("%s for %q: %v", c.url, c.who.Name, res.Header())
		}
	}
}

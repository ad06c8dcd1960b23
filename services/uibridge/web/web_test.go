package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestThePageIsAskedForEachTimeAndItsAssetsAreKept(t *testing.T) {
	h := Handler()
	res := get(t, h, http.MethodGet, "/")
	if res.Code != http.StatusOK || res.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
		res.Header().Get("Cache-Control") != "no-cache" {
		t.Fatalf("/: %d %v", res.Code, res.Header())
	}
	if got := res.Header().Get("Content-Security-Policy"); got != Policy {
		t.Errorf("/ has the policy %q", got)
	}
	page := res.Body.String()
	links := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 4 {
		t.Fatalf("the page names %d files, want its script, styles and icon:\n%s", len(links), page)
	}
	for _, l := range links {
		res := get(t, h, http.MethodGet, l[1])
		if res.Code != http.StatusOK || !strings.Contains(res.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, Cache-Control %q", l[1], res.Code, res.Header().Get("Cache-Control"))
		}
		if want := types[path.Ext(l[1])]; res.Header().Get("Content-Type") != want {
			t.Errorf("%s: Content-Type %q, want %q", l[1], res.Header().Get("Content-Type"), want)
		}
	}
}

// Modules name each other by relative paths; one that is not there would be seen by
// the browser alone.
func TestWhatModulesImportIsThere(t *testing.T) {
	imports := regexp.MustCompile(`(?:from|import)\s*\(?\s*'(\./[^']+)'`)
	err := fs.WalkDir(embedded, "static", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".js" {
			return err
		}
		src, err := fs.ReadFile(embedded, name)
		if err != nil {
			return err
		}
		for _, m := range imports.FindAllStringSubmatch(string(src), -1) {
			if _, err := fs.Stat(embedded, path.Join("static", m[1])); err != nil {
				t.Errorf("%s imports %s: %v", name, m[1], err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What would need an exception of the policy must not be written in the first place.
func TestHTMLIsSetInOnePlaceAndNothingIsInline(t *testing.T) {
	raw := regexp.MustCompile(`\.(?:innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|srcdoc)\b|document\.write|\beval\(|new Function|createContextualFragment|parseFromString`)
	inline := regexp.MustCompile(`<style|\sstyle=|\son\w+=|javascript:`)
	found := 0
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		src, err := fs.ReadFile(embedded, name)
		if err != nil {
			return err
		}
		switch path.Ext(name) {
		case ".js":
			for _, m := range raw.FindAllString(string(src), -1) {
				if path.Base(name) == "html.js" && m == ".innerHTML" {
					found++
					continue
				}
				t.Errorf("%s uses %s; HTML goes in through html.js", name, m)
			}
		case ".html":
			if m := inline.FindString(string(src)); m != "" {
				t.Errorf("%s has %q, which the policy forbids", name, m)
			}
			for _, m := range regexp.MustCompile(`<script[^>]*>`).FindAllString(string(src), -1) {
				if !strings.Contains(m, " src=") {
					t.Errorf("%s has a script inside: %s", name, m)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != 1 {
		t.Errorf("html.js sets innerHTML %d times, want one place", found)
	}
}

func TestAFileThatIsKnownIsNotSentAgain(t *testing.T) {
	h := Handler()
	for _, target := range []string{"/", "/assets/style.css"} {
		res := get(t, h, http.MethodGet, target)
		tag := res.Header().Get("ETag")
		if tag == "" {
			t.Fatalf("%s has no ETag", target)
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if again := get(t, h, http.MethodGet, target, "If-None-Match", known); again.Code != http.StatusNotModified ||
				again.Body.String() != "" {
				t.Errorf("%s, If-None-Match %s: %d", target, known, again.Code)
			}
		}
		if again := get(t, h, http.MethodGet, target, "If-None-Match", `"other"`); again.Code != http.StatusOK {
			t.Errorf("%s, another tag: %d", target, again.Code)
		}
	}
}

func TestNothingElseIsServed(t *testing.T) {
	h := Handler()
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{http.MethodPost, "/", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/assets/app.js", http.StatusMethodNotAllowed},
		{http.MethodOptions, "/", http.StatusMethodNotAllowed},
		{http.MethodGet, "/index.html", http.StatusNotFound},
		{http.MethodGet, "/assets/index.html", http.StatusNotFound}, // it is a template
		{http.MethodGet, "/assets/", http.StatusNotFound},
		{http.MethodGet, "/assets/nothing.js", http.StatusNotFound},
		{http.MethodGet, "/assets/0000000000000000/app.js", http.StatusNotFound}, // of another version
		{http.MethodGet, "/assets/../web.go", http.StatusNotFound},
		{http.MethodGet, "/favicon.ico", http.StatusNotFound},
	} {
		if res := get(t, h, c.method, c.target); res.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.target, res.Code, c.want)
		}
	}
}

func TestHEADHasHeadersAlone(t *testing.T) {
	h := Handler()
	full, head := get(t, h, http.MethodGet, "/"), get(t, h, http.MethodHead, "/")
	for _, name := range []string{"Content-Length", "Content-Type", "ETag", "Cache-Control", "Content-Security-Policy"} {
		if full.Header().Get(name) == "" || full.Header().Get(name) != head.Header().Get(name) {
			t.Errorf("%s: GET %q, HEAD %q", name, full.Header().Get(name), head.Header().Get(name))
		}
	}
	if b := head.Body.String(); b != "" {
		t.Errorf("HEAD has a body of %d bytes", len(b))
	}
}

func TestTheVersionIsOfWhatTheAssetsAre(t *testing.T) {
	tree := func(css string) fstest.MapFS {
		return fstest.MapFS{
			"index.html": {Data: []byte(`<link href="/assets/{{.Version}}/a.css">`)}, "a.css": {Data: []byte(css)},
			"b.js": {Data: []byte("x")},
		}
	}
	load := func(f fstest.MapFS) *page {
		p, err := load(f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, same, other := load(tree("a")), load(tree("a")), load(tree("b"))
	if one.version != same.version || one.version == other.version {
		t.Errorf("versions %s, %s, %s", one.version, same.version, other.version)
	}
	if !strings.Contains(string(one.index.body), "/assets/"+one.version+"/a.css") {
		t.Errorf("the page does not name its version: %s", one.index.body)
	}
}

func TestWhatIsWrongWithAPageIsSaidAtTheStart(t *testing.T) {
	for _, c := range []struct {
		tree fstest.MapFS
		want string
	}{
		{fstest.MapFS{"index.html": {}, "a.wasm": {}}, "a.wasm"},
		{fstest.MapFS{"a.css": {}}, "index.html is missing"},
		{fstest.MapFS{"index.html": {Data: []byte("{{")}}, "template"},
	} {
		if _, err := load(c.tree); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

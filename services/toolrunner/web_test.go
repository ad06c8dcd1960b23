package toolrunner_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner"
	"skandha.dev/services/toolrunner/tools/web"
)

// Whatever tool of the web it is from, a result names its pages in data.sources.
func TestResultsOfTheWebNameTheirSources(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/search" {
			_, _ = fmt.Fprintf(w, `{"results":[{"title":"A page","url":"http://%s/page","content":"of words"}]}`, r.Host)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>A page</title><p>of words"))
	}))
	t.Cleanup(srv.Close)
	c := start(t, toolrunner.Config{Web: web.Config{
		Search: "searxng", SearchURL: srv.URL, FetchLocal: []string{strings.TrimPrefix(srv.URL, "http://")},
	}})
	for name, args := range map[string]string{"web:search": `{"query":"words"}`, "web:fetch": `{"url":"` + srv.URL + `/page"}`} {
		r := c.call(name, args)
		var data struct{ Sources []struct{ Title, URL string } }
		if err := json.Unmarshal(r.Data, &data); err != nil || len(data.Sources) != 1 || data.Sources[0].Title != "A page" ||
			data.Sources[0].URL != srv.URL+"/page" {
			t.Errorf("%s: %s, %+v, %v", name, r.Data, r.Error, err)
		}
	}
	if r := c.call("web:search", `{"query":"words","count":21}`); r.Success {
		t.Errorf("21 results were asked for: %s", r.Data)
	}
}

func TestWithoutConfigurationTheWebIsNotOffered(t *testing.T) {
	c := start(t, toolrunner.Config{})
	for _, name := range []string{"http:request", "web:search", "web:fetch"} {
		if slices.Contains(c.offered(), name) {
			t.Errorf("%s is offered", name)
		}
	}
}

// The key of the search engine is not for the file tools.
func TestTheKeyFileIsProtected(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := toolrunner.Config{WorkspaceDir: dir, Web: web.Config{Search: "exa", SearchKey: "file:" + key}}
	if err := cfg.CheckWorkspace(); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("got %v", err)
	}
	outside := t.TempDir()
	cfg.WorkspaceDir = outside
	if err := os.Link(key, filepath.Join(outside, "link")); err != nil {
		t.Fatal(err)
	}
	if r := start(t, cfg).call("file_system:read_file", `{"path":"link"}`); r.Success {
		t.Errorf("it was read: %s", r.Data)
	}
}

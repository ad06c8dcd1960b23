package depstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func get(t *testing.T, url, accept string) (string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get("Content-Type"), string(body)
}

func TestPages(t *testing.T) {
	x := New(t, Wheel{Name: "Some.Thing", Version: "1.0", RequiresPython: ">=3"},
		SDist{Name: "some-thing", Version: "2.0"})
	url := x.Listen("127.0.0.1:0")
	kind, page := get(t, url+"/some-thing/", "text/html")
	for _, s := range []string{
		`href="/files/Some.Thing-1.0-py3-none-any.whl#sha256=`, `data-requires-python="&gt;=3"`, "some-thing-2.0.tar.gz",
	} {
		if kind != "text/html" || !strings.Contains(page, s) {
			t.Errorf("%s: %s\ndoes not say %s", kind, page, s)
		}
	}
	kind, page = get(t, url+"/some-thing/", jsonType)
	var said struct {
		Files []struct{ Filename, URL string }
	}
	if err := json.Unmarshal([]byte(page), &said); err != nil || kind != jsonType || len(said.Files) != 2 {
		t.Errorf("%s: %s (%v), want two files", kind, page, err)
	}
	if got := x.Requests(); !slices.Equal(got, []string{"/simple/some-thing/", "/simple/some-thing/"}) {
		t.Errorf("the requests are %q", got)
	}
}

// The absence of marks proves something only if setup.py leaves one.
func TestSetupLeavesAMark(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal("NOT TESTED: python3 is not installed; `make setup` installs it on Debian")
		}
		t.Skip("NOT TESTED: python3 is not installed; `make setup` installs it on Debian")
	}
	x := New(t, SDist{Name: "sourcy", Version: "1.0"})
	url := x.Listen("127.0.0.1:0")
	_, data := get(t, strings.TrimSuffix(url, "/simple")+"/files/sourcy-1.0.tar.gz", "")
	setup := filepath.Join(t.TempDir(), "setup.py")
	if err := os.WriteFile(setup, unpack(t, data)["sourcy-1.0/setup.py"], 0o600); err != nil {
		t.Fatal(err)
	}
	// Whether there is a setuptools to go on with does not matter.
	_ = exec.CommandContext(t.Context(), python, "-I", setup, "--name").Run()
	if got := x.Marks(); !slices.Equal(got, []string{"sourcy"}) {
		t.Errorf("the marks are %q, want sourcy's", got)
	}
}

func unpack(t *testing.T, data string) map[string][]byte {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader([]byte(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

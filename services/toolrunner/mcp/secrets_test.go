package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner/mcp"
)

// What a server repeats of the secrets that it was given is hidden, in results and elsewhere.
func TestSecretsThatAServerRepeatsAreHidden(t *testing.T) {
	t.Setenv("SKANDHA_KEY_OF_TEST", "hush-hush-7")
	s := python(t, mcp.Host)
	s.Env = map[string]string{"KEY": "env:SKANDHA_KEY_OF_TEST", "MODE": "verbose"}
	r := newRig(t, map[string]mcp.Server{"py": s})
	for args, want := range map[string]string{
		`{"path":"env:KEY"}`: "(hidden)", `{"path":"env:MODE"}`: "verbose",
	} {
		if got := r.text("py:look", args); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	if got := r.text("py:echo", `{"text":"the key is hush-hush-7."}`); got != "the key is (hidden)." {
		t.Errorf("a text: %q", got)
	}
	web := serve(t, raw{tools: `[` + good + `]`, call: func(w http.ResponseWriter, req request) {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"bad token hush-hush-7"}}`, req.ID)
	}})["evil"]
	web.Token = "env:SKANDHA_KEY_OF_TEST"
	r = newRig(t, map[string]mcp.Server{"evil": web})
	res, err := r.call(t.Context(), "evil:good", `{}`)
	b, _ := json.Marshal(res)
	if err != nil || res.Success || strings.Contains(string(b), "hush-hush-7") || !strings.Contains(string(b), "bad token (hidden)") {
		t.Errorf("an error: %s, %v", b, err)
	}
	loud := mcp.Server{
		Command: []string{"/bin/sh", "-c", `echo "no such key: $KEY" >&2; exit 1`}, Isolation: mcp.Host, Env: s.Env,
	}
	r = newRig(t, map[string]mcp.Server{"loud": loud})
	r.logged("its last words: no such key: (hidden)")
	if strings.Contains(r.log.String(), "hush-hush-7") {
		t.Errorf("the log has it:\n%s", r.log)
	}
}

// A command in the sandbox is not shown a directory with protected files.
func TestProtectedDirectoriesAreNotShown(t *testing.T) {
	data := t.TempDir()
	keys, work, other := filepath.Join(data, "keys"), filepath.Join(data, "workspace"), t.TempDir()
	for _, dir := range []string{keys, work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(keys, link); err != nil {
		t.Fatal(err)
	}
	for dir, refused := range map[string]bool{
		data: true, keys: true, link: true, filepath.Dir(data): true, filepath.Join(data, "new"): true,
		work: false, other: false,
	} {
		if err := mcp.CheckRead(dir, []string{data}, work); (err != nil) != refused {
			t.Errorf("%s: %v", dir, err)
		}
	}
	s := python(t, mcp.Sandbox)
	r := newRigWith(t, map[string]mcp.Server{"py": s}, mcp.Options{
		StateDir: t.TempDir(), Refuses: func(dir string) error { return mcp.CheckRead(dir, s.Read, "") },
	})
	r.logged("keeps its keys and data")
}

package mcp_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/toolrunner/mcp"
)

// The reference server of the protocol's authors, in the sandbox, without network.
func TestTheReferenceServer(t *testing.T) {
	foreigntest.Need(t, "node")
	needBwrap(t)
	modules := foreigntest.Modules(t, filepath.Join("testdata", "node"), "ci")
	r := newRig(t, map[string]mcp.Server{"everything": {
		Command: []string{"node", filepath.Join(modules, "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"},
		Read:    []string{filepath.Dir(modules)},
	}})
	if got := r.text("everything:echo", `{"message":"hello"}`); got != "Echo: hello" {
		t.Errorf("it says %q", got)
	}
	res, err := r.call(t.Context(), "everything:get-structured-content", `{"location":"Chicago"}`)
	var data struct {
		Structured struct{ Temperature float64 }
	}
	if err != nil || json.Unmarshal(res.Data, &data) != nil || data.Structured.Temperature == 0 {
		t.Errorf("structured content is %s, %v", res.Data, err)
	}
	if res, err = r.call(t.Context(), "everything:get-tiny-image", `{}`); err != nil || len(res.Files) != 1 {
		t.Errorf("an image is %+v, %v", res, err)
	}
	progress := make(chan string, 99)
	long := r.tool("everything:trigger-long-running-operation")
	if _, err := long.Call(t.Context(), r.with(`{"duration":1,"steps":2}`, func(s string) { progress <- s })); err != nil || len(progress) == 0 {
		t.Errorf("%d reports of progress, %v", len(progress), err)
	}
	res, err = r.call(t.Context(), "everything:trigger-elicitation-request", `{}`)
	if asked, _ := res.Metadata["declined"].([]string); err != nil || len(asked) != 1 || !strings.Contains(string(res.Data), "decline") {
		t.Errorf("a question is answered with %s %+v, %v", res.Data, res.Metadata, err)
	}
}

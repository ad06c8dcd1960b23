package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/mcp"
)

// The protocol's inspector lists the tools and asks the agent.
func TestInspector(t *testing.T) {
	c := newClients(t)
	url := front(t, serve(t, turntest.Start(t), mcp.Config{}).handler)
	inspect := func(into any, args ...string) {
		t.Helper()
		out, err := c.run("@modelcontextprotocol/inspector/clients/launcher/build/index.js",
			append([]string{"--cli", url, "--transport", "http"}, args...)...)
		begin := strings.Index(out, "{")
		if err != nil || begin < 0 || json.NewDecoder(strings.NewReader(out[begin:])).Decode(into) != nil {
			t.Fatalf("%v: %v:\n%s", args, err, out)
		}
	}
	var list struct{ Tools []struct{ Name string } }
	inspect(&list, "--method", "tools/list")
	names := ""
	for _, tool := range list.Tools {
		names += tool.Name + " "
	}
	if names != "ask cancel list_sessions list_tools read_session wait " {
		t.Errorf("the tools are %s", names)
	}
	var got struct{ StructuredContent mcp.Answer }
	inspect(&got, "--method", "tools/call", "--tool-name", "ask", "--tool-arg", "text=hello", "--tool-arg", "session=seen")
	if got.StructuredContent.Text != "echo: hello" {
		t.Errorf("got %+v", got)
	}
	var resources struct{ Resources []struct{ URI string } }
	inspect(&resources, "--method", "resources/list")
	if len(resources.Resources) != 1 || resources.Resources[0].URI != "skandha://sessions/main/seen" {
		t.Errorf("got %+v", resources)
	}
}

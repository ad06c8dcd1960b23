package tool_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
)

// No plugin can have a name that is a built-in tool's, or that looks like one.
func TestNamesOfPluginsTools(t *testing.T) {
	for name, want := range map[string]string{
		"mail:send": "", "web_search": "", "Mail-2.0:send.all": "", "file_systems:read": "", "file_system": "",
		"file_system:read_file": "reserved", "File_System:read_file": "reserved", "file_system:read_all": "reserved",
		"python:execute": "reserved", "skills:load": "reserved", "PLAN:execute": "reserved", "time:": "not a valid tool name",
		"": "not a valid tool name", ":": "not a valid tool name", "a:": "not a valid tool name",
		":b": "not a valid tool name", "a:b:c": "not a valid tool name", "a b": "not a valid tool name",
		"file_system:read_file ": "not a valid tool name", "file_system\u200b:read_file": "not a valid tool name",
		"fіle_system:read_file": "not a valid tool name",
		"ﬁle_system:read_file":  "not a valid tool name", "a\u202eb": "not a valid tool name",
		"mail:send\nX": "not a valid tool name", "a/b": "not a valid tool name", "a*": "not a valid tool name",
	} {
		switch err := tool.CheckName(name); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

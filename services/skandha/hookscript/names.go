package hookscript

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tool says how a tool is called in the format, and what its arguments are called there.
type Tool struct {
	Ours, Theirs string
	Args         map[string]string // ours to theirs, for those that differ
}

var inFile = map[string]string{"path": "file_path"}

// Tools lists the tools that have names in the format. Any other tool, such as math:evaluate, is
// mcp__math__evaluate there, with its own arguments.
var Tools = []Tool{
	{"shell:execute", "Bash", nil},
	{"file_system:read_file", "Read", inFile},
	{"file_system:write_file", "Write", inFile},
	{"file_system:append_file", "Write", inFile},
	{"sandbox_fs:read", "Read", inFile},
	{"sandbox_fs:write", "Write", inFile},
	{"file_system:list", "LS", nil},
	{"sandbox_fs:list", "LS", nil},
	{"web:fetch", "WebFetch", nil},
	{"web:search", "WebSearch", nil},
}

// toolOf returns how a tool is called in the format.
func toolOf(ours string) Tool {
	for _, t := range Tools {
		if t.Ours == ours {
			return t
		}
	}
	group, name, found := strings.Cut(ours, ":")
	if !found {
		return Tool{Ours: ours, Theirs: ours}
	}
	return Tool{Ours: ours, Theirs: "mcp__" + group + "__" + name}
}

// rename renames the fields of an object. Two fields that would have the same name are an error.
func rename(args json.RawMessage, names map[string]string) (json.RawMessage, error) {
	if len(args) == 0 {
		return json.RawMessage("{}"), nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(args, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("the arguments are not an object: %w", err)
	}
	out := make(map[string]json.RawMessage, len(fields))
	for name, v := range fields {
		if to := names[name]; to != "" {
			name = to
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("two arguments are called %s", name)
		}
		out[name] = v
	}
	return json.Marshal(out)
}

// theirs returns the arguments as the format calls them.
func (t Tool) theirs(args json.RawMessage) (json.RawMessage, error) { return rename(args, t.Args) }

// ours returns arguments of the format as the tool calls them.
func (t Tool) ours(args json.RawMessage) (json.RawMessage, error) {
	back := map[string]string{}
	for ours, theirs := range t.Args {
		back[theirs] = ours
	}
	return rename(args, back)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

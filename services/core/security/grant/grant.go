package grant

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

// Max is how many grants a session may hold. Further ones are not offered.
const Max = 100

// Bounds of a grant.
const (
	maxValue = 512 // of one pattern, in bytes
	maxScope = 8   // arguments of a scope
)

// all is the suffix of a wide pattern.
const all = "/*"

// wrappers are tools that run arbitrary code, so only exactly the same call can be
// granted. The same applies to any tool that declares to run code, or whose scope is a
// program: "rm drafts/*" is not a directory.
var wrappers = []string{"plan:execute", "shell:execute", "python:execute"}

const runsCode = "code.execute"

// programs are the names of arguments that contain code to run.
var programs = []string{"code", "command", "cmd", "commands", "script", "program", "expression", "sql", "argv"}

func wrapper(spec tool.Spec) bool {
	return slices.Contains(wrappers, strings.ToLower(spec.Name)) || slices.Contains(spec.Permissions, runsCode) ||
		slices.ContainsFunc(spec.Scope, func(arg string) bool { return slices.Contains(programs, strings.ToLower(arg)) })
}

// Offers lists the grants that an approval of the call may choose, the narrowest first.
// hash is the hash of the call, and after says which texts from outside it follows. There is always
// at least one: exactly this call.
func Offers(spec tool.Spec, args json.RawMessage, hash string, after []string) []event.Grant {
	is := spec.Digest()
	exact := []event.Grant{{Tool: spec.Name, Spec: is, Hash: hash, After: after}}
	values, ok := scoped(spec, args)
	if !ok {
		return exact
	}
	wide, wider := make(map[string]string, len(values)), false
	for name, v := range values {
		if strings.HasSuffix(v, all) || !printable(v) || len(v) > maxValue {
			return exact // as a pattern it would mean something else, or be misleading
		}
		wide[name] = v
		if w, ok := widen(v); ok {
			wide[name], wider = w, true
		}
	}
	out := []event.Grant{{Tool: spec.Name, Spec: is, Args: values, After: after}}
	if wider {
		out = append(out, event.Grant{Tool: spec.Name, Spec: is, Args: wide, After: after})
	}
	return out
}

// Find returns the first of the grants that covers the call. A grant applies only to the
// tool that was shown, not to one with another owner or another spec, and to no call that follows a
// text from outside that the request did not name.
func Find(
	grants []event.Grant, spec tool.Spec, args json.RawMessage, hash string, after []string,
) (event.Grant, bool) {
	if !slices.ContainsFunc(grants, func(g event.Grant) bool { return g.Tool == spec.Name }) {
		return event.Grant{}, false
	}
	values, ok := scoped(spec, args)
	is := spec.Digest()
	for _, g := range grants {
		switch {
		case g.Tool != spec.Name || g.Tool == "" || g.Spec != is || !named(g, after):
		case g.Hash != "":
			if len(g.Args) == 0 && g.Hash == hash {
				return g, true
			}
		case ok && fitAll(g.Args, values):
			return g, true
		}
	}
	return event.Grant{}, false
}

// named reports whether the grant's request named all texts from outside that a call follows.
func named(g event.Grant, after []string) bool {
	return !slices.ContainsFunc(after, func(label string) bool { return !slices.Contains(g.After, label) })
}

// fitAll reports whether each value has a pattern and matches it.
func fitAll(patterns, values map[string]string) bool {
	if len(patterns) != len(values) {
		return false
	}
	for name, v := range values {
		if pattern, bound := patterns[name]; !bound || !fits(pattern, v) {
			return false
		}
	}
	return true
}

// In reports whether others contains the same grant.
func In(others []event.Grant, g event.Grant) bool {
	return slices.ContainsFunc(others, func(o event.Grant) bool {
		return o.Tool == g.Tool && o.Spec == g.Spec && o.Hash == g.Hash && maps.Equal(o.Args, g.Args) &&
			slices.Equal(o.After, g.After) && o.People == g.People && o.Requester == g.Requester
	})
}

// scoped returns the values of all arguments in the tool's scope. It returns false if
// there are none, one is absent or not a string, or it is unclear which one counts.
func scoped(spec tool.Spec, args json.RawMessage) (map[string]string, bool) {
	if n := len(spec.Scope); n == 0 || n > maxScope || wrapper(spec) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(string(args)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	out := make(map[string]string, len(spec.Scope))
	for d.More() {
		key, err := d.Token()
		var raw json.RawMessage
		if err != nil || d.Decode(&raw) != nil {
			return nil, false
		}
		for _, name := range spec.Scope {
			// A decoder may take "PATH" for "path", or the last of two.
			if k, _ := key.(string); !strings.EqualFold(k, name) {
				continue
			}
			var v *string
			if _, twice := out[name]; twice || key != name || json.Unmarshal(raw, &v) != nil || v == nil {
				return nil, false
			}
			out[name] = *v
		}
	}
	return out, len(out) == len(spec.Scope)
}

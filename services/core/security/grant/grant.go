package grant

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

// Max is how many grants a session may hold; further ones are not offered.
const Max = 100

// Bounds of a grant.
const (
	maxValue = 512 // of one pattern, in bytes
	maxScope = 8   // arguments
)

// all is what a wide pattern ends in.
const all = "/*"

// wrappers run whatever they are handed: of them only the very same call is ever
// granted. So is it of any tool that declares to run code, or whose scope is a
// program: "rm drafts/*" is no directory.
var wrappers = []string{"plan:execute", "shell:execute", "python:execute"}

const runsCode = "code.execute"

// programs are the names of arguments that are run, not acted on.
var programs = []string{"code", "command", "cmd", "commands", "script", "program", "expression", "sql", "argv"}

func wrapper(spec tool.Spec) bool {
	return slices.Contains(wrappers, strings.ToLower(spec.Name)) || slices.Contains(spec.Permissions, runsCode) ||
		slices.ContainsFunc(spec.Scope, func(arg string) bool { return slices.Contains(programs, strings.ToLower(arg)) })
}

// Offers lists what an approval of the call may cover beyond it, the narrowest
// first. Hash is the call's. There is always one: exactly this call.
func Offers(spec tool.Spec, args json.RawMessage, hash string) []event.Grant {
	is := spec.Digest()
	exact := []event.Grant{{Tool: spec.Name, Spec: is, Hash: hash}}
	values, ok := scoped(spec, args)
	if !ok {
		return exact
	}
	wide, wider := make(map[string]string, len(values)), false
	for name, v := range values {
		if strings.HasSuffix(v, all) || !printable(v) || len(v) > maxValue {
			return exact // as a pattern it would mean something else, or not show what it is
		}
		wide[name] = v
		if w, ok := widen(v); ok {
			wide[name], wider = w, true
		}
	}
	out := []event.Grant{{Tool: spec.Name, Spec: is, Args: values}}
	if wider {
		out = append(out, event.Grant{Tool: spec.Name, Spec: is, Args: wide})
	}
	return out
}

// Covers reports whether the grant covers a call with the hash.
func Covers(g event.Grant, spec tool.Spec, args json.RawMessage, hash string) bool {
	_, found := Find([]event.Grant{g}, spec, args, hash)
	return found
}

// Find is the first of the grants that covers the call. A grant is for the tool that was
// shown: none of another owner, or with another spec.
func Find(grants []event.Grant, spec tool.Spec, args json.RawMessage, hash string) (event.Grant, bool) {
	if !slices.ContainsFunc(grants, func(g event.Grant) bool { return g.Tool == spec.Name }) {
		return event.Grant{}, false
	}
	values, ok := scoped(spec, args)
	is := spec.Digest()
	for _, g := range grants {
		switch {
		case g.Tool != spec.Name || g.Tool == "" || g.Spec != is:
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

// fitAll: each of the values has a pattern, and fits it.
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

// In reports whether the very same grant is among the others.
func In(others []event.Grant, g event.Grant) bool {
	return slices.ContainsFunc(others, func(o event.Grant) bool {
		return o.Tool == g.Tool && o.Spec == g.Spec && o.Hash == g.Hash && maps.Equal(o.Args, g.Args)
	})
}

// scoped gives the values of all the arguments that say on what the tool acts. Not
// ok: there are none, one is absent or no string, or it is open which one counts.
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

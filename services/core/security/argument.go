package security

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/services/core/security/grant"
)

// argument is a condition on one argument of a call.
type argument struct {
	name         string
	exact, lower pattern
	origin       pattern // for a URL's scheme, host and port; exact is then for the rest
	isURL, wild  bool
	host         string // of a URL, as written in the rule, with its port
}

// newArgument prepares the condition. A URL pattern with wildcards is matched in two
// halves, so that a star in the host cannot match part of the path.
func newArgument(name, p string) argument {
	a := argument{name: name, exact: newPattern(p), lower: newPattern(inOneForm(strings.ToLower(p))), wild: wild(p)}
	if scheme, rest, ok := strings.Cut(p, "://"); ok && a.wild {
		host, below, _ := strings.Cut(rest, "/")
		a.isURL, a.host, a.origin, a.exact = true, host, newPattern(scheme+"://"+host), newPattern("/"+below)
	}
	return a
}

// bound reports whether a URL pattern limits the host safely: to one host, to those
// below a domain, or explicitly to any.
func (a argument) bound() bool {
	name, port := splitPort(a.host)
	return (name == "*" || ipv6(name) || !wild(strings.TrimPrefix(name, "*."))) && (port == "*" || !wild(port))
}

// match reports whether the condition holds. With wary, for rules that deny or ask, any
// value may match, in any of its forms.
func (a argument) match(args json.RawMessage, wary bool) bool {
	values, sure := valuesOf(args, a.name)
	if wary {
		return slices.ContainsFunc(values, func(v string) bool { return slices.ContainsFunc(forms(v), a.lower.match) })
	}
	return sure && len(values) == 1 && a.trusts(values[0])
}

// trusts reports whether a value matches and can be read in only one way.
func (a argument) trusts(v string) bool {
	switch origin, ok := grant.Origin(v); {
	case !a.wild:
		return a.exact.match(v)
	case a.isURL:
		rest := strings.TrimPrefix(v, origin)
		if rest == "" {
			rest = "/"
		}
		return ok && grant.Straight(rest) && a.origin.match(origin) && a.exact.match(rest)
	case ok:
		return a.exact.any
	}
	return a.exact.any || grant.Clean(strings.TrimPrefix(v, "/")) && a.exact.match(v)
}

// valuesOf returns every scalar in the arguments that a decoder may take for the named
// one. sure reports that there is only one such argument, with exactly that name, and
// that it is a scalar.
func valuesOf(args json.RawMessage, name string) (values []string, sure bool) {
	d := json.NewDecoder(strings.NewReader(string(args)))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	found := 0
	for d.More() {
		key, err := d.Token()
		var v any
		if err != nil || d.Decode(&v) != nil {
			return values, false
		}
		k, _ := key.(string)
		if !strings.EqualFold(k, name) {
			continue
		}
		found++
		if s, scalar := text(v); scalar {
			values = append(values, s)
			sure = k == name && found == 1
		} else {
			values, sure = below(v, values), false
		}
	}
	return values, sure && found == 1
}

func text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	case bool:
		if x {
			return "true", true
		}
		return "false", true
	case nil:
		return "null", true
	}
	return "", false
}

func below(v any, out []string) []string {
	switch x := v.(type) {
	case map[string]any:
		for _, e := range x {
			out = below(e, out)
		}
	case []any:
		for _, e := range x {
			out = below(e, out)
		}
	default:
		s, _ := text(v)
		out = append(out, s)
	}
	return out
}

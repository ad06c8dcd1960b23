package security

import (
	"path"
	"strings"
)

// pattern is a pattern of path.Match whose stars also match slashes: the name of a tool
// is not a path, and a rule that denies "mcp:*" includes "mcp:files/delete".
type pattern struct {
	text  string // without slashes
	plain bool   // without wildcards: matches only itself
	any   bool
}

func newPattern(p string) pattern {
	return pattern{text: noSlash(p), plain: !wild(p), any: p == "" || strings.Trim(p, "*") == ""}
}

// wild reports whether a pattern has wildcards.
func wild(p string) bool { return strings.ContainsAny(p, `*?[\`) }

func (p pattern) match(s string) bool {
	if p.any {
		return true
	}
	s = noSlash(s)
	if p.plain {
		return s == p.text
	}
	ok, err := path.Match(p.text, s)
	return err == nil && ok
}

func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

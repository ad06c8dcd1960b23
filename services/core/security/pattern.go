package security

import (
	"path"
	"strings"
)

// pattern is one of path.Match whose stars stand for slashes too: a tool's name
// is no path, and a rule that denies "mcp:*" means "mcp:files/delete".
type pattern struct {
	text  string // without slashes
	plain bool   // it stands for itself
	any   bool
}

func newPattern(p string) pattern {
	return pattern{text: noSlash(p), plain: !wild(p), any: p == "" || strings.Trim(p, "*") == ""}
}

// wild reports whether a pattern stands for more than itself.
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

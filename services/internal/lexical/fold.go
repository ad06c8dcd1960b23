package lexical

import (
	_ "embed"
	"strings"
	"sync"

	"golang.org/x/text/unicode/norm"
)

//go:embed variants.txt
var variants string

var folded = sync.OnceValue(func() map[rune]rune { return parse(variants) })

// Fold returns the text in lower case, with one width and one form of each Han character,
// so that parts of texts can be compared.
func Fold(text string) string {
	return strings.Map(fold, strings.ToLower(norm.NFKC.String(strings.ToValidUTF8(text, " "))))
}

// fold returns the form of a Han character that all of its forms are compared by.
func fold(r rune) rune {
	if f, ok := folded()[r]; ok {
		return f
	}
	return r
}

// parse reads groups of characters, each begun by the form that the others are folded to.
// Lines that begin with # are comments.
func parse(table string) map[rune]rune {
	forms := map[rune]rune{}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for group := range strings.FieldsSeq(line) {
			chars := []rune(group)
			for _, r := range chars[1:] {
				forms[r] = chars[0]
			}
		}
	}
	return forms
}

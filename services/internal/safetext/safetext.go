// Package safetext makes untrusted text, such as that of models, tools and hooks, harmless
// before it reaches a terminal: escape sequences are removed, nothing moves the
// cursor, and nothing disguises itself by changing the text direction.
package safetext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean is for prose: control characters, and those that reorder the text
// around them, become U+FFFD. Line feeds and tabs stay, as do the letters, marks
// and joiners of every script.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !control(r) && !reorders(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

// Line is like [Clean] and returns one line.
func Line(s string) string { return strings.Join(strings.Fields(Clean(s)), " ") }

// Visible is for text that people base a decision on, such as a tool's arguments: every
// character that is invisible, or changes how others are shown, is spelled out
// as ⟨U+202E⟩. Line feeds stay.
func Visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || !hidden(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		}
	}
	return b.String()
}

// control reports C0, DEL, C1 and invalid characters.
func control(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f || r == utf8.RuneError }

// reorders reports the embeddings, overrides and isolates of the bidirectional
// algorithm, and the separators that begin a new line.
func reorders(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// hidden reports characters that a reader would not notice.
func hidden(r rune) bool {
	switch {
	case control(r), reorders(r):
		return true
	case r == ' ':
		return false
	case r == 0x115f, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xffa0: // blank letters and patterns
		return true
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef: // variation selectors
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z)
}

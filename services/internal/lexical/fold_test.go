package lexical

import (
	"strings"
	"testing"
	"unicode"
)

// Every character is in the table once, so that folding twice is folding once.
func TestTheTableOfVariants(t *testing.T) {
	seen := map[rune]bool{}
	for line := range strings.Lines(variants) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, r := range strings.Join(strings.Fields(line), "") {
			if seen[r] || !unicode.Is(unicode.Han, r) {
				t.Errorf("%q is there twice, or is not Han", r)
			}
			seen[r] = true
		}
	}
	if n := len(folded()); n < 2400 {
		t.Errorf("%d characters are folded, want 2,400", n)
	}
}

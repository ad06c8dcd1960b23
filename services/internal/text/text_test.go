package text_test

import (
	"testing"

	"skandha.dev/services/internal/text"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"äöü", 3, "ä…"}, {"äöü", 4, "äö…"}, {"ä", 1, "…"}, {"", 0, ""},
	} {
		if got := text.Cut(c.s, c.n); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

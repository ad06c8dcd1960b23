package runes_test

import (
	"testing"

	"skandha.dev/services/internal/runes"
)

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		buf    string
		limit  int
		middle bool
		want   string
	}{
		{"abc", 9, false, "abc"},
		{"abä", 3, false, "ab"},
		{"\xa4bc", 9, true, "bc"},
		{"\xa4bc", 9, false, "\xa4bc"},
		{"漢x", 2, false, "漢"},
		{"\x80\x80\x80\x80\x80\x80", 5, false, "\x80\x80\x80\x80\x80"},
	} {
		start, end := runes.Whole([]byte(c.buf), c.limit, c.middle)
		if got := c.buf[start:end]; got != c.want {
			t.Errorf("%q, at most %d, is %q, want %q", c.buf, c.limit, got, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for s, want := range map[string][2]string{
		"": {}, "abc": {"abc"}, "abcd": {"abc", "d"}, "abä": {"ab", "ä"}, "äöü": {"ä", "öü"},
	} {
		if piece, rest := runes.Split(s, 3); piece != want[0] || rest != want[1] {
			t.Errorf("%q is split into %q and %q, want %q", s, piece, rest, want)
		}
	}
}

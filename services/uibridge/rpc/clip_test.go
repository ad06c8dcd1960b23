package rpc

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCloseReasonsFit(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 500), strings.Repeat("ü", 500), strings.Repeat("漢", 41)} {
		if got := clip(s); len(got) > 123 || !utf8.ValidString(got) || len(s) <= 120 && got != s {
			t.Errorf("%q is clipped to %q", s, got)
		}
	}
}

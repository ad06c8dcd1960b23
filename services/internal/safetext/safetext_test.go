package safetext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"skandha.dev/services/internal/safetext"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"prose stays", "Grüße, 世界 👩‍👩‍👧\n\tשלום नमस्ते", "Grüße, 世界 👩‍👩‍👧\n\tשלום नमस्ते"},
		{"CSI", "a\x1b[2Jb", "a�[2Jb"},
		{"OSC 52", "\x1b]52;c;aGk=\x07", "�]52;c;aGk=�"},
		{"OSC 8", "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\", "�]8;;http://evil�\\x�]8;;�\\"},
		{"C1 as UTF-8", "\u009b2J\u009d0;t\u009c", "�2J�0;t�"},
		{"C1 as bytes", "\x9b2J", "�2J"},
		{"carriage return and backspace", "good\rbad\b\b", "good�bad��"},
		{"direction overrides", "gpj.\u202eexe\u202c \u2066x\u2069", "gpj.�exe� �x�"},
		{"line separators", "a\u2028b\u2029c", "a�b�c"},
		{"broken UTF-8", "a\xff\xfeb", "a��b"},
	} {
		if got := safetext.Clean(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := safetext.Line(" a\n\tb\x1b c "); got != "a b� c" {
		t.Errorf("%q", got)
	}
}

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"what is seen stays", `{"a": "é 世 ✓"}`, `{"a": "é 世 ✓"}`},
		{"override", "x\u202ey", "x⟨U+202E⟩y"},
		{"zero width", "pay\u200bpal\u200d\ufeff", "pay⟨U+200B⟩pal⟨U+200D⟩⟨U+FEFF⟩"},
		{"other blanks", "a\u00a0b\u3000c\u3164", "a⟨U+00A0⟩b⟨U+3000⟩c⟨U+3164⟩"},
		{"tags", "x\U000e0041", "x⟨U+E0041⟩"},
		{"soft hyphen and selector", "a\u00adb\ufe0f", "a⟨U+00AD⟩b⟨U+FE0F⟩"},
		{"escape and tab", "\x1b[0m\t", "⟨U+001B⟩[0m⟨U+0009⟩"},
		{"lines", "a\nb", "a\nb"},
	} {
		if got := safetext.Visible(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Whatever comes in, nothing that a terminal acts upon comes out.
func FuzzNothingGetsThrough(f *testing.F) {
	f.Add("\x1b]52;c;x\x07\u009b2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for name, out := range map[string]string{
			"Clean": safetext.Clean(s), "Visible": safetext.Visible(s), "Line": safetext.Line(s),
		} {
			if !utf8.ValidString(out) {
				t.Fatalf("%s: %q is no UTF-8", name, out)
			}
			if i := strings.IndexFunc(out, func(r rune) bool {
				return r != '\n' && r != '\t' &&
					(r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069)
			}); i >= 0 {
				t.Fatalf("%s: %q has %q", name, s, out[i:])
			}
		}
	})
}

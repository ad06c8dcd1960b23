package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDiffReadsWell(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"nothing", "a\n", "a\n", "  a"},
		{"a line", "a\nb\nc\n", "a\nB\nc\n", "  a\n- b\n+ B\n  c"},
		{"all is new", "", "a\nb\n", "+ a\n+ b"},
		{"all is gone", "a\n", "", "- a"},
		{"the end of the last line", "a", "a\n", "- a\n  (no newline at end)\n+ a"},
		{
			"two places", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n",
			"- 1\n+ one\n  2\n  3\n… 3 unchanged lines\n  7\n  8\n- 9\n+ nine",
		},
		{
			"one line is not left out", "1\n2\n3\n4\n5\n6\n7\n", "one\n2\n3\n4\n5\n6\nseven\n",
			"- 1\n+ one\n  2\n  3\n  4\n  5\n  6\n- 7\n+ seven",
		},
		{"what is hidden", "a\n", "a\u202e\x1b[2J\n", "- a\n+ a⟨U+202E⟩⟨U+001B⟩[2J"},
	} {
		if got := plain(diffRows(c.before, c.after, 40)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// Whatever the texts: what is taken out and what stays is the one, what is put in and
// what stays the other.
func TestDiffLosesNothing(t *testing.T) {
	text := func(r *rand.Rand) string {
		var b strings.Builder
		for range r.IntN(40) {
			b.WriteString(string(rune('a'+r.IntN(5))) + "\n")
		}
		return b.String() + strings.Repeat("x", r.IntN(2))
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		before, after := text(r), text(r)
		if seed%10 == 0 { // too much to compare
			before += strings.Repeat("p\nq\n", 600)
			after += strings.Repeat("s\nt\n", 600)
		}
		var a, b strings.Builder
		for _, c := range diff(before, after) {
			if c.op != '+' {
				a.WriteString(c.text)
			}
			if c.op != '-' {
				b.WriteString(c.text)
			}
		}
		if a.String() != before || b.String() != after {
			t.Fatalf("seed %d: %q and %q became %q and %q", seed, before, after, a.String(), b.String())
		}
	}
}

package markdown_test

import (
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/test/xss"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/markdown"
)

// settings are places in a document that a text may come to.
var settings = []string{
	"%s", "# %s", "> %s", "- a\n\n  %s", "1. %s", "**%s**", "[%s](https://x.example)", "[x](%s)",
	"[x](https://x.example \"%s\")",
	"![%s](/v1/agents/a/sessions/s/artifacts/x.png)", "![x](%s)", "`%s`", "```%s\nx\n```", "```\n%s\n```",
	"| a |\n|---|\n| %s |", "<%s>", "    %s",
	"~~%s~~", "- [ ] %s", "%s\n===", "<!-- %s -->", "a\\\n%s  \nb",
}

func TestNothingOfTheCorpusComesThrough(t *testing.T) {
	vectors := xss.Vectors()
	if len(vectors) < 150 {
		t.Fatalf("the corpus has %d vectors", len(vectors))
	}
	r := markdown.New()
	for _, v := range vectors {
		for _, s := range settings {
			text := strings.ReplaceAll(s, "%s", v)
			if bad := unsafe(r.Render(text)); len(bad) > 0 {
				t.Errorf("%q\n gives %s\n with %q", text, r.Render(text), bad)
			}
		}
	}
}

// All at once, and in pieces: what one leaves open, the next one does not close.
func TestNothingOfTheCorpusComesThroughWhileItIsWritten(t *testing.T) {
	r := markdown.New()
	for _, between := range []string{"\n\n", "\n", " ", ""} {
		text := strings.Join(xss.Vectors(), between)
		if bad := unsafe(r.Render(text)); len(bad) > 0 {
			t.Errorf("joined by %q: %q", between, bad)
		}
	}
	for _, v := range xss.Vectors() {
		s := r.Stream()
		blocks := map[int]string{}
		for _, c := range v {
			for _, b := range s.Append(string(c)) {
				blocks[b.Index] = b.HTML
				if bad := unsafe(b.HTML); len(bad) > 0 {
					t.Fatalf("%q: a block is %s, with %q", v, b.HTML, bad)
				}
			}
		}
		if bad := unsafe(joined(blocks)); len(bad) > 0 {
			t.Errorf("%q: the blocks joined are %s, with %q", v, joined(blocks), bad)
		}
	}
}

func joined(blocks map[int]string) string {
	var b strings.Builder
	for i := range len(blocks) {
		b.WriteString(blocks[i])
	}
	return b.String()
}

func apply(blocks map[int]string, changes []contract.Block) {
	for _, b := range changes {
		blocks[b.Index] = b.HTML
	}
}

func FuzzRender(f *testing.F) {
	for _, v := range xss.Vectors() {
		f.Add(v)
	}
	for _, d := range documents {
		f.Add(d)
	}
	r := markdown.New()
	f.Fuzz(func(t *testing.T, text string) {
		if bad := unsafe(r.Render(text)); len(bad) > 0 {
			t.Errorf("%q\n gives %s\n with %q", text, r.Render(text), bad)
		}
	})
}

// However a text comes in pieces, its blocks make the page of the whole text.
func FuzzStream(f *testing.F) {
	for _, d := range documents {
		f.Add(d, uint8(3))
	}
	r := markdown.New()
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		s, blocks := r.Stream(), map[int]string{}
		for rest := text; rest != ""; {
			n := min(1+int(step)%17, len(rest))
			apply(blocks, s.Append(rest[:n]))
			rest = rest[n:]
		}
		apply(blocks, s.Flush())
		if got, want := joined(blocks), r.Render(text); got != want {
			t.Errorf("%q in pieces of %d\n got %s\nwant %s", text, 1+int(step)%17, got, want)
		}
	})
}

// The policy alone, given raw HTML, leaves at most links and pictures that lack what the
// renderer gives them.
func TestThePolicyAloneLetsNothingThrough(t *testing.T) {
	r := markdown.New()
	for _, v := range xss.Vectors() {
		for _, bad := range unsafe(r.Sanitize(v)) {
			if !slices.Contains([]string{"a link without rel or target", "a link to ", "a picture from "}, bad) {
				t.Errorf("%q\n gives %s\n with %q", v, r.Sanitize(v), bad)
			}
		}
	}
}

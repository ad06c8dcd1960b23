package markdown_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"skandha.dev/services/uibridge/markdown"
)

const link = ` rel="noopener noreferrer nofollow" target="_blank"`

func TestRender(t *testing.T) {
	r := markdown.New()
	for _, c := range []struct{ about, text, want string }{
		{"nothing", "", ""},
		{"a paragraph", "a *b* **c** ~~d~~ `e`", "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>\n"},
		{"a heading has no id", "# Hello", "<h1>Hello</h1>\n"},
		{"HTML is text", "<b>x</b> <!-- y -->", "<p>&lt;b&gt;x&lt;/b&gt; &lt;!-- y --&gt;</p>\n"},
		{"an HTML block is text with Markdown in it", "<div>\n*x*\n</div>", "<p>&lt;div&gt;\n<em>x</em>\n&lt;/div&gt;</p>\n"},
		{
			"a link", `[x](https://x.example/a?b=c%20d "t")`,
			`<p><a href="https://x.example/a?b=c%20d" title="t"` + link + `>x</a></p>` + "\n",
		},
		{
			"a bare link", "see https://x.example/a.",
			`<p>see <a href="https://x.example/a"` + link + `>https://x.example/a</a>.</p>` + "\n",
		},
		{"a mail address", "a@x.example", `<p><a href="mailto:a@x.example"` + link + `>a@x.example</a></p>` + "\n"},
		{"no other scheme", "ftp://x.example/a [x](ftp://x.example) <tel:+1>", "<p>ftp://x.example/a x tel:+1</p>\n"},
		{
			"an artifact", "![plot](/v1/agents/a/sessions/s/artifacts/p%20q.png)",
			`<p><img src="/v1/agents/a/sessions/s/artifacts/p%20q.png" alt="plot"></p>` + "\n",
		},
		{
			"a link to an artifact", "[plot](/v1/agents/a/sessions/s/artifacts/x/y.csv)",
			`<p><a href="/v1/agents/a/sessions/s/artifacts/x/y.csv"` + link + `>plot</a></p>` + "\n",
		},
		{
			"a remote picture is a link", "![a *cat*](https://x.example/c.png)",
			`<p><a href="https://x.example/c.png"` + link + `>a cat</a></p>` + "\n",
		},
		{
			"without a text, it says where to", "![](https://x.example/c.png)",
			`<p><a href="https://x.example/c.png"` + link + `>https://x.example/c.png</a></p>` + "\n",
		},
		{
			"a remote picture in a link is its text", "[![b](https://x.example/b.svg)](https://y.example)",
			`<p><a href="https://y.example"` + link + `>b</a></p>` + "\n",
		},
		{"a link to nowhere is its text", "[x *y*](javascript:z)", "<p>x <em>y</em></p>\n"},
		{"code with a language", "```go\na < b\n```", "<pre><code class=\"language-go\">a &lt; b\n</code></pre>\n"},
		{"code in a strange language", "```g\"o\na\n```", "<pre><code>a\n</code></pre>\n"},
		{"code that has not ended", "```\na\n\nb", "<pre><code>a\n\nb\n</code></pre>\n"},
		{
			"a table", "|a|b|\n|:-|-:|\n|1|`x\\|y`|",
			"<table>\n<thead>\n<tr>\n<th align=\"left\">a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n" +
				"<td align=\"left\">1</td>\n<td align=\"right\"><code>x|y</code></td>\n</tr>\n</tbody>\n</table>\n",
		},
		{"tasks", "- [x] a\n- [ ] b", "<ul>\n<li>☑ a</li>\n<li>☐ b</li>\n</ul>\n"},
		{"a list that begins later", "3. a", "<ol start=\"3\">\n<li>a</li>\n</ol>\n"},
		{
			"a definition is text", "[1]: https://x.example\n\n[1]",
			`<p>[1]: <a href="https://x.example"` + link + `>https://x.example</a></p>` + "\n<p>[1]</p>\n",
		},
		{"NUL and bytes that are no UTF-8", "a\x00b\xffc", "<p>a\uFFFDb\uFFFDc</p>\n"},
	} {
		t.Run(c.about, func(t *testing.T) {
			if got := r.Render(c.text); got != c.want {
				t.Errorf("%q\n got %s\nwant %s", c.text, got, c.want)
			}
		})
	}
}

// documents are texts as models write them.
var documents = []string{
	"# Title\n\nA paragraph\nof two lines.\n\n- a\n- b\n\n  more of b\n\n- c\n\nAfter the list.\n\n1. one\n\n   ```go\n" +
		"   x := 1\n\n   y := 2\n   ```\n\n2. two\n\n```\nfence\n\n- not a list\n```\n\n> quote\n\n> another\n\n| a | b |\n" +
		"|---|---|\n| 1 | 2 |\n\nend",
	"- a\n  ```\n\nfoo\n\n```\ncode\n\nmore\n```\n\nbar\n", "10. a\n ```\n\ncode\n\n```\n\nx\n",
	"    code\n\n    more\n\nx\n\n\ty\n", "a\n===\n\nb\n---\n\n---\n\n***\n",
	"```\nno end\n\nreally\n", "~~~~\n~~~\n\n~~~~\n\nx", "a\r\n\r\nb\r\n\r\n```\r\nc\r\n\r\nd\r\n```\r\n",
	"\n\n\na\n\n\n\nb\n\n\n", "* a\n\n+ b\n\n- c\n\n1) d\n\n2. e\n",
	"> - a\n\n> - b\n>\n> ```\n> c\n\nd", "a\n\n1\n\n1.\n\n1. x\n", "-\n\n-\n\n- a\n",
	"a | b\n-|-\n\nx\n\na | b\n-|-\n1 | 2\n\n3 | 4\n", "[a]: https://x.example\n\n[a]\n\n[b]\n\n[b]: https://y.example",
	"- a\n\n      code\n\n  b\n\n\n\n- c\n\nd",
}

// However a text comes in pieces, its blocks make the page of the whole text.
func TestBlocksOfAStreamAreThePage(t *testing.T) {
	r := markdown.New()
	rnd := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"a", "b c", "\n", "\n\n", "- ", "1. ", "  ", "    ", "\t", "```", "```\n", "~~~", "> ", "# ", "|a|b|\n|-|-|\n", "---",
		"===", "`", "*", "**", "[x](https://x.example)", "<div>", "\r\n", "é", "+ ", "* ", "   ", "[a]: /x\n", "\\", "10) ",
	}
	texts := append([]string{}, documents...)
	for range 500 {
		var b strings.Builder
		for range 2 + rnd.IntN(40) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		texts = append(texts, b.String())
	}
	for _, text := range texts {
		s, blocks := r.Stream(), map[int]string{}
		for rest := text; rest != ""; {
			n := min(1+rnd.IntN(6), len(rest)) // in the middle of a letter, too
			apply(blocks, s.Append(rest[:n]))
			rest = rest[n:]
			if so := text[:len(text)-len(rest)]; joined(blocks) != r.Render(so) {
				t.Fatalf("%q\n got %s\nwant %s", so, joined(blocks), r.Render(so))
			}
		}
	}
}

// What has been said of a block that is over is never said again.
func TestAStreamTouchesOnlyItsOpenEnd(t *testing.T) {
	s := markdown.New().Stream()
	highest := 0
	for i := range 200 {
		for _, b := range s.Append(fmt.Sprintf("paragraph %d\n\n", i)) {
			if b.Index < highest-1 {
				t.Fatalf("append %d changed block %d after block %d", i, b.Index, highest)
			}
			highest = max(highest, b.Index)
		}
	}
	if highest != 199 {
		t.Errorf("200 paragraphs are %d blocks", highest+1)
	}
	if got := s.Append(""); got != nil {
		t.Errorf("nothing more gave %v", got)
	}
}

// A long block is not rendered at each append, and is complete after Flush.
func TestALongBlockIsRenderedInSteps(t *testing.T) {
	r := markdown.New()
	s, blocks, times := r.Stream(), map[int]string{}, 0
	var text strings.Builder
	text.WriteString("```\n")
	apply(blocks, s.Append("```\n"))
	for i := range 4000 {
		piece := fmt.Sprintf("line %d\n", i)
		text.WriteString(piece)
		changes := s.Append(piece)
		times += len(changes)
		apply(blocks, changes)
	}
	apply(blocks, s.Flush())
	if joined(blocks) != r.Render(text.String()) {
		t.Error("the block is not the whole text")
	}
	if times > 600 {
		t.Errorf("4000 appends rendered the block %d times", times)
	}
}

func BenchmarkRender(b *testing.B) {
	r, text := markdown.New(), strings.Repeat(documents[0]+"\n\n", 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Render(text)
	}
}

// One append of a token at the end of a text of each size: the time does not grow.
func BenchmarkAppend(b *testing.B) {
	for _, paragraphs := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(paragraphs), func(b *testing.B) {
			s := markdown.New().Stream()
			s.Append(strings.Repeat("a paragraph of some words that is not long\n\n", paragraphs))
			for i := 0; b.Loop(); i++ {
				if i%20 == 19 {
					s.Append("\n\n")
				}
				s.Append("token ")
			}
		})
	}
}

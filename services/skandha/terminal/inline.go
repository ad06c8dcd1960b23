package terminal

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// inline styles the Markdown within a line. The text must be clean.
func inline(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n, out := span(s, b.Len() == 0 || endsInSpace(b.String()))
		b.WriteString(out)
		s = s[n:]
	}
	return b.String()
}

func endsInSpace(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

var link = regexp.MustCompile(`^!?\[([^\[\]]*)\]\(<?([^\s()<>]+)>?(?:\s+"[^"]*")?\)`)

// span returns the length of the first piece of s, and its styled text. Emphasis may
// not begin in the middle of a word: snake_case stays as it is.
func span(s string, wordBegins bool) (n int, out string) {
	switch s[0] {
	case '\\':
		if len(s) > 1 && strings.IndexByte("\\`*_{}[]()#+-.!|~<>", s[1]) >= 0 {
			return 2, s[1:2]
		}
	case '`':
		return codeSpan(s)
	case '*', '_', '~':
		if n, out, ok := emphasis(s, wordBegins); ok {
			return n, out
		}
		run := len(s) - len(strings.TrimLeft(s, s[:1]))
		return run, s[:run]
	case '[', '!':
		if g := link.FindStringSubmatch(s); g != nil {
			return len(g[0]), linkText(g)
		}
	}
	_, size := utf8.DecodeRuneInString(s)
	end := strings.IndexAny(s[size:], "\\`*_~[!")
	if end < 0 {
		return len(s), s
	}
	return size + end, s[:size+end]
}

func codeSpan(s string) (int, string) {
	run := len(s) - len(strings.TrimLeft(s, "`"))
	mark := s[:run]
	end := strings.Index(s[run:], mark)
	if end < 0 {
		return run, mark
	}
	text := s[run : run+end]
	if t := strings.TrimSpace(text); t != "" && strings.Contains(t, "`") {
		text = t
	}
	return 2*run + end, cyan.of(text)
}

var marks = []struct {
	mark  string
	style style
}{
	{"***", style{bold.on + italic.on, italic.off + bold.off}},
	{"**", bold},
	{"__", bold},
	{"~~", strike},
	{"*", italic},
	{"_", italic},
}

func emphasis(s string, wordBegins bool) (n int, out string, ok bool) {
	for _, m := range marks {
		if !strings.HasPrefix(s, m.mark) || (m.mark[0] == '_' || m.mark == "*") && !wordBegins {
			continue
		}
		rest := s[len(m.mark):]
		if rest == "" || rest[0] == ' ' || rest[0] == m.mark[0] {
			continue
		}
		end := closing(rest, m.mark)
		if end <= 0 {
			continue
		}
		return len(m.mark)*2 + end, m.style.of(inline(rest[:end])), true
	}
	return 0, "", false
}

// closing finds where emphasis ends: not after a space, and not within code.
func closing(s, mark string) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '`':
			n, _ := codeSpan(s[i:])
			i += n - 1
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], mark):
			after := s[i+len(mark):]
			inWord := mark[0] == '_' && after != "" && !endsInSpace(after[:1])
			longer := len(mark) == 1 && (strings.HasPrefix(after, mark) || s[max(i-1, 0)] == mark[0])
			if i > 0 && s[i-1] != ' ' && !inWord && !longer {
				return i
			}
		}
	}
	return -1
}

// linkText returns the text and the link's address, so that the reader sees where it
// leads.
func linkText(g []string) string {
	text, url := g[1], g[2]
	if strings.HasPrefix(g[0], "!") {
		text = strings.TrimSpace("picture " + text)
	}
	if text == url || text == "" {
		return underline.of(url)
	}
	return inline(text) + " (" + underline.of(url) + ")"
}

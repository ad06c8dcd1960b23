package chat

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/runes"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
)

// maxArgs is how much of a call's arguments is shown, in bytes.
const maxArgs = 700

// Shown is a message as people read it.
type Shown struct {
	Text string // Markdown
	Code string // of a request for approval
}

// Show returns the text of a message. A request for approval is stored before, so that it can
// be answered.
func (h *Hub) Show(ctx context.Context, at Place, m contract.Outgoing) (Shown, error) {
	switch {
	case m.Kind == tool.KindApproval && m.Approval != nil:
		code, err := h.remember(ctx, at, m)
		if err != nil {
			return Shown{}, err
		}
		return Shown{Text: approvalText(*m.Approval, code, m.Link), Code: code}, nil
	case m.Kind == tool.KindFailure:
		return Shown{Text: withLink("No answer: "+m.Text, m.Link)}, nil
	case m.Kind == tool.KindNotice:
		return Shown{Text: withLink(m.Text, m.Link)}, nil
	}
	return Shown{Text: m.Text}, nil
}

func withLink(s, link string) string {
	if link == "" {
		return s
	}
	return s + "\n" + link
}

// approvalText is the same whenever it is made, so that a probe can look for it.
func approvalText(a tool.Approval, code, link string) string {
	args, label := oneLine(secret.Hide(a.Args)), "Arguments: "
	if len(args) > maxArgs {
		label = fmt.Sprintf("Arguments (the first %d of %d bytes; the page shows all): ", maxArgs, len(args))
	}
	lines := []string{"Approval needed: " + oneLine(a.Tool), label + text.Cut(args, maxArgs)}
	if a.Warning != "" {
		lines = append(lines, "Warning: "+oneLine(secret.HideText(a.Warning)))
	}
	if a.Needs != "" {
		lines = append(lines, "Needed: "+oneLine(a.Needs))
	}
	lines = append(lines, fmt.Sprintf("Expires: %s; without an answer the call is denied.", clockOf(a.ExpiresAt)),
		fmt.Sprintf("Answer: yes %s, or: no %s REASON", code, code))
	return withLink(strings.Join(lines, "\n"), link)
}

// oneLine replaces line ends and other control characters, and those that change the direction of
// writing, by spaces.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s))
}

var (
	heading  = regexp.MustCompile(`^#{1,6}\s+`)
	image    = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)[^)]*\)`)
	linked   = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)[^)]*\)`)
	emphasis = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// Plain returns the lines of a Markdown text for networks that show text as it is. Code blocks
// keep their lines.
func Plain(markdown string) []string {
	var out []string
	inCode := false
	for line := range strings.SplitSeq(strings.ToValidUTF8(markdown, "\uFFFD"), "\n") {
		line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " \r")
		if fence := strings.TrimLeft(line, " "); strings.HasPrefix(fence, "```") || strings.HasPrefix(fence, "~~~") {
			inCode = !inCode
			continue
		}
		if !inCode {
			line = heading.ReplaceAllString(line, "")
			line = image.ReplaceAllString(line, "$1 ($2)")
			line = linked.ReplaceAllString(line, "$1 ($2)")
			line = emphasis.ReplaceAllString(line, "$1")
		}
		out = append(out, line)
	}
	return out
}

// Lines divides lines so that each has at most limit bytes, at a space where there is one, and
// drops empty ones. Control characters become spaces. What is beyond the maximum is left out, and
// the last line says how much.
func Lines(lines []string, limit, maximum int) []string {
	var out []string
	for _, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if len(indent) > limit/2 {
			indent = ""
		}
		rest := oneLine(line)
		for rest != "" {
			var piece string
			piece, rest = wrap(rest, limit-len(indent))
			out = append(out, indent+piece)
		}
	}
	if len(out) > maximum {
		left := len(out) - maximum + 1
		out = append(out[:maximum-1], fmt.Sprintf("(%d more lines were left out; the page shows the whole answer)", left))
	}
	return out
}

// Parts divides a text into messages of at most limit bytes, at line ends where possible. What is beyond
// the maximum is left out, and the last one says so.
func Parts(s string, limit, maximum int) (parts []string) {
	const rest = "\n(the rest was left out; the page shows the whole answer)"
	for s != "" && len(parts) < maximum {
		piece, left := runes.Split(s, limit-len(rest))
		if at := strings.LastIndexByte(piece, '\n'); left != "" && at > limit/2 {
			piece, left = s[:at], s[at+1:]
		}
		if left != "" && len(parts) == maximum-1 {
			piece += rest
		}
		parts, s = append(parts, piece), strings.TrimLeft(left, "\n")
	}
	return parts
}

// wrap takes a piece of at most limit bytes off the front, if possible up to a space.
func wrap(s string, limit int) (piece, rest string) {
	piece, rest = runes.Split(s, limit)
	if at := strings.LastIndexByte(piece, ' '); rest != "" && at > limit/2 && rest[0] != ' ' {
		piece, rest = s[:at], s[at+1:]
	}
	return strings.TrimRight(piece, " "), strings.TrimLeft(rest, " ")
}

// Permanent is the result of a delivery that a repetition cannot mend.
func Permanent(err error) tool.Result {
	r := tool.Failure(tool.CodeFailed, err.Error())
	r.Metadata = map[string]any{tool.MetadataPermanent: true}
	return r
}

// Later is the result of a delivery that may succeed after a while.
func Later(err error, after time.Duration) tool.Result {
	r := tool.Failure(tool.CodeFailed, err.Error())
	if after > 0 {
		r.Metadata = map[string]any{tool.MetadataRetryAfter: after.Milliseconds()}
	}
	return r
}

// Addressed reports whether a text begins with a name, as in "name: text" or "@name text", and
// returns the rest.
func Addressed(text, name string) (rest string, ok bool) {
	s := strings.TrimPrefix(text, "@")
	if len(s) < len(name) || !strings.EqualFold(s[:len(name)], name) {
		return text, false
	}
	rest = s[len(name):]
	trimmed := strings.TrimLeft(rest, ":,")
	if len(trimmed) == len(rest) && (s == text || !strings.HasPrefix(rest, " ")) {
		return text, false // neither "name:" nor "@name "
	}
	return strings.TrimSpace(trimmed), true
}

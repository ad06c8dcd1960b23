package terminal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/safetext"
)

// toolName returns a tool's name, with invisible characters spelled out.
func toolName(name string) string {
	return bold.of(safetext.Visible(strings.Join(strings.Fields(name), " ")))
}

// result formats a finished call: one line, followed by details.
func result(p event.ActCompleted, c *call, width int) []string {
	mark, more := green.of("✓"), ""
	if !p.Result.Success {
		mark = red.of("✗")
		code := tool.CodeFailed
		if p.Result.Error != nil {
			code = p.Result.Error.Code
			more = string(code) + ": " + safetext.Line(p.Result.Error.Message)
		} else {
			more = string(code)
		}
		if code == tool.CodeDenied || code == tool.CodeExpired || code == tool.CodeCancelled || code == tool.CodeSkipped {
			mark = yellow.of("⊘")
		}
	}
	head := mark + " " + toolName(p.Tool)
	tail := ""
	if p.DurationMS > 0 || p.Runner != "" {
		tail = dim.of(" · " + duration(time.Duration(p.DurationMS)*time.Millisecond))
	}
	if c != nil {
		if args := brief(c.Args, width-cells(head)-cells(tail)-1); args != "" {
			head += " " + dim.of(args)
		}
	}
	out := []string{fit(head, width-cells(tail)) + tail}
	if more != "" {
		rows := wrap(dim.of(more), width, dim.of("  ↳ "), "    ")
		if len(rows) > 3 {
			rows = append(rows[:3], dim.of("    …"))
		}
		out = append(out, rows...)
	}
	if p.Result.Success || printout(p.Result.Data) != "" {
		out = append(out, answerRows(p.Result.Data, width)...)
	}
	artifacts, leftOut := Artifacts(p.Result.Data)
	for _, a := range artifacts {
		out = append(out,
			wrap(fmt.Sprintf("%s, %d bytes: %s artifacts get %s", safetext.Line(a.Path), a.Bytes, buildinfo.Command(),
				safetext.Line(a.Ref)),
				width, blue.of("  ⤓ "), "    ")...)
	}
	for _, why := range leftOut {
		out = append(out, wrap("not kept: "+safetext.Line(why), width, dim.of("  ↳ "), "    ")...)
	}
	return out
}

// answerLines is how many lines of a tool's answer or output are shown.
const answerLines = 6

// answerRows formats a tool's answer: texts and a program's output as lines, anything
// else in brief.
func answerRows(data json.RawMessage, width int) []string {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = printout(data)
	}
	text = strings.Trim(text, "\n")
	if text == "" {
		if short := brief(data, width-4); short != "" && short != `""` {
			return []string{dim.of("  ↳ " + short)}
		}
		return nil
	}
	all := strings.Split(safetext.Clean(text), "\n")
	var out []string
	for i, line := range all[:min(len(all), answerLines)] {
		mark := "    "
		if i == 0 {
			mark = "  ↳ "
		}
		out = append(out, fit(dim.of(mark+strings.ReplaceAll(line, "\t", "    ")), width))
	}
	if more := len(all) - answerLines; more > 0 {
		out = append(out, dim.of("    … "+count(more, "more line")))
	}
	return out
}

// printout returns a program's output from the data of its result; it is empty for other
// data.
func printout(data json.RawMessage) string {
	var run struct {
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	}
	if json.Unmarshal(data, &run) != nil {
		return ""
	}
	return strings.Trim(strings.TrimRight(run.Stdout, "\n")+"\n"+run.Stderr, "\n")
}

// Artifact describes a kept file in a result.
type Artifact struct {
	Path  string `json:"path"` // in the sandbox
	Ref   string `json:"ref"`  // its name in the object store
	Bytes int64  `json:"bytes"`
}

// Artifacts returns the files that a call handed over, from the data of its result, and
// the reasons for those that were not kept.
func Artifacts(data json.RawMessage) (kept []Artifact, leftOut []string) {
	var d struct {
		Artifacts []Artifact `json:"artifacts"`
		LeftOut   []string   `json:"artifacts_left_out"`
	}
	if json.Unmarshal(data, &d) != nil {
		return nil, nil // data of another kind
	}
	return d.Artifacts, d.LeftOut
}

// live formats a running call.
func (c *call) live(now time.Time, width int) []string {
	tail := dim.of(" · " + seconds(now.Sub(c.began)))
	head := spinner(now) + " " + toolName(c.Tool)
	if args := brief(c.Args, width-cells(head)-cells(tail)-1); args != "" {
		head += " " + dim.of(args)
	}
	out := []string{fit(head, width-cells(tail)) + tail}
	for _, l := range c.tail {
		out = append(out, fit(dim.of("  │ "+strings.ReplaceAll(l, "\t", "    ")), width))
	}
	return out
}

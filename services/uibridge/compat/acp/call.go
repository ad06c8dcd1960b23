package acp

import (
	"cmp"
	"encoding/json"
	"path"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
)

// call is a tool call as the client knows it.
type call struct {
	id     string
	tool   string
	args   json.RawMessage
	parent string
	edit   *proposal.Edit
	state  string
	output string    // the end of what it printed
	shown  time.Time // when output was sent
	flush  *time.Timer
}

// The limits of what is sent of a call, in bytes, and the pause between two updates of its output.
const (
	maxTitle  = 120
	maxOutput = 16 << 10
	maxResult = 64 << 10
	outputGap = 250 * time.Millisecond
)

// container is the tool whose steps are calls.
const container = "plan:execute"

// kinds has the kinds of calls, by the last part of the tool's name.
var kinds = map[string]string{
	"read": "read", "read_file": "read", "list": "read", "look": "read", "download": "read",
	"write": "edit", "write_file": "edit", "append_file": "edit", "edit": "edit", "replace": "edit", "upload": "edit",
	"delete": "delete", "delete_file": "delete", "remove": "delete", "forget": "delete", "move": "move", "rename": "move",
	"search": "search", "find": "search", "retrieve": "search", "match": "search", "grep": "search", "glob": "search",
	"execute": "execute", "run": "execute", "evaluate": "execute", "fetch": "fetch", "request": "fetch",
}

func kindOf(tool string) string {
	if tool == container {
		return "think"
	}
	return cmp.Or(kinds[tool[strings.LastIndex(tool, ":")+1:]], "other")
}

// proposed shows the calls of a plan. They begin later, if policy allows it.
func (t *translator) proposed(steps []event.Step) {
	for _, s := range steps {
		t.call(s.Call, s.Tool, s.Args).parent = s.Parent
	}
	if len(steps) > 0 {
		t.plan()
	}
}

// call returns a call, which is shown when it is new.
func (t *translator) call(id, tool string, args json.RawMessage) *call {
	if c := t.calls[id]; c != nil {
		return c
	}
	c := &call{id: id, tool: tool, state: pending}
	c.become(args, &t.files)
	t.calls[id] = c
	t.order = append(t.order, id)
	u := update{Kind: newToolCall, toolCall: t.describe(c), Title: c.title()}
	if d := t.diff(c); d != nil {
		u.Content = d
	}
	t.x.send(u)
	return c
}

// become sets the arguments with which a call runs.
func (c *call) become(args json.RawMessage, known *proposal.Files) {
	c.args, c.edit = args, nil
	if fs, ok := proposal.Fields(args); ok {
		c.edit = proposal.EditOf(c.tool, fs, known)
	}
}

func (c *call) title() string {
	args := string(c.args)
	if fs, ok := proposal.Fields(c.args); ok {
		for _, name := range []string{"path", "command", "url", "query", "expression", "name"} {
			if v, ok := proposal.Text(fs, name); ok {
				args = v
				break
			}
		}
	}
	if args == "{}" {
		args = ""
	}
	return strings.TrimSpace(safetext.Visible(oneLine(c.tool+" "+args, maxTitle)))
}

func (t *translator) describe(c *call) *toolCall {
	out := &toolCall{ToolCallID: c.id, Name: c.tool, Kind: kindOf(c.tool), Status: c.state, RawInput: c.args}
	if fs, ok := proposal.Fields(c.args); ok {
		if p, ok := proposal.Text(fs, "path"); ok {
			if at := t.absolute(c.tool, p); filepath.IsAbs(at) && strings.HasPrefix(c.tool, "file_system:") {
				out.Locations = []location{{at}}
			}
		}
	}
	return out
}

// absolute returns where a file is on this machine, or the path as the tool knows it.
func (t *translator) absolute(tool, p string) string {
	w := t.x.server.sys.Workspace
	if w == "" || !strings.HasPrefix(tool, "file_system:") || path.IsAbs(p) {
		return p
	}
	return filepath.Join(w, filepath.FromSlash(p))
}

// diff returns a call's edit; nil if it makes none that a diff could show.
func (t *translator) diff(c *call) []callContent {
	e := c.edit
	if e == nil {
		return nil
	}
	if e.Before == "" && !e.Whole {
		return content(e.About + "\n\n" + e.After)
	}
	out := callContent{Type: "diff", Path: t.absolute(c.tool, e.Path), NewText: &e.After}
	if e.Before != "" {
		out.OldText = &e.Before
	}
	return []callContent{out}
}

func content(s string) []callContent {
	if s == "" {
		return nil
	}
	return []callContent{{Type: "content", Content: textBlock(s)}}
}

// began shows that a call runs, with the final arguments.
func (t *translator) began(v *contract.ToolCall) {
	c := t.call(v.Call, v.ToolName, v.Args)
	c.state = inProgress
	c.become(v.Args, &t.files)
	u := update{Kind: toolCallUpdate, toolCall: t.describe(c), Title: c.title()}
	if d := t.diff(c); d != nil {
		u.Content = d
	}
	t.x.send(u)
	t.plan()
}

// printed shows the end of a call's output, not more often than a person can read.
func (t *translator) printed(v *contract.ToolOutput) {
	c := t.calls[v.Call]
	if c == nil || c.state != inProgress {
		return
	}
	c.output += v.Text
	if n := len(c.output) - maxOutput; n > 0 {
		c.output = "…" + strings.ToValidUTF8(c.output[n:], "")
	}
	switch wait := outputGap - time.Since(c.shown); {
	case wait <= 0:
		t.output(c)
	case c.flush == nil:
		c.flush = time.AfterFunc(wait, func() {
			t.x.mu.Lock()
			defer t.x.mu.Unlock()
			if c.flush = nil; c.state == inProgress {
				t.output(c)
			}
		})
	}
}

func (t *translator) output(c *call) {
	c.shown = time.Now()
	t.x.send(update{Kind: toolCallUpdate, toolCall: &toolCall{ToolCallID: c.id}, Content: content(safetext.Clean(c.output))})
}

// result shows a call's one result.
func (t *translator) result(v *contract.ToolResult) {
	c := t.call(v.Call, v.ToolName, nil)
	t.withdraw(v.Call)
	t.files.Learn(event.ActCompleted{Call: v.Call, Tool: v.ToolName, Result: v.Result}, c.args)
	out := &toolCall{ToolCallID: c.id, Status: completed, RawOutput: v.Result.Data}
	more := printout(v.Result.Data)
	if !v.Result.Success {
		out.Status = failed
		if e := v.Result.Error; e != nil {
			more = strings.TrimSpace(string(e.Code) + ": " + e.Message + "\n" + more)
		}
	}
	c.state = out.Status
	u := update{Kind: toolCallUpdate, toolCall: out}
	if shown := content(safetext.Clean(text.Cut(more, maxResult))); shown != nil && (c.edit == nil || !v.Result.Success) {
		u.Content = shown
	}
	if len(out.RawOutput) > maxResult {
		out.RawOutput = nil
	}
	t.x.send(u)
	t.plan()
}

// printout returns the text of a result's data.
func printout(data json.RawMessage) string {
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	var run struct {
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	}
	if json.Unmarshal(data, &run) == nil && run.Stdout+run.Stderr != "" {
		return strings.TrimRight(run.Stdout, "\n") + "\n" + run.Stderr
	}
	return string(data)
}

// plan shows the steps of the turn, if there are several.
func (t *translator) plan() {
	var entries []planEntry
	for _, id := range t.order {
		c := t.calls[id]
		if c.tool == container {
			continue
		}
		status := c.state
		if status == failed {
			status = completed // the protocol has no other state for what is over
		}
		entries = append(entries, planEntry{Content: c.title(), Priority: "medium", Status: status})
	}
	if len(entries) > 1 {
		t.x.send(update{Kind: planUpdate, Entries: entries})
	}
}

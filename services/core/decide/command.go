package decide

import (
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/planner"
)

// Command describes a slash command.
type Command struct {
	Name string
	Help string
}

// Commands lists the slash commands that core answers, in every UI alike.
func Commands() []Command {
	return []Command{
		{"help", "what can be typed"},
		{"reset", "end the running turn, forget the conversation, unlock the session"},
		{"cancel", "end the running turn; calls that ran are reported as they are"},
		{"tools", "the tools that the agent may use now"},
		{"provider", "which language model answers"},
		{"metrics", "figures of this session and of the tools"},
	}
}

func readCommand(body []byte) (event.Command, error) {
	var c event.Command
	if err := event.DecodeCause(body, &c); err != nil {
		return event.Command{}, err
	}
	if len(c.ID) > event.MaxInputIDBytes {
		return event.Command{}, fmt.Errorf("%w: id has %d bytes, at most %d", event.ErrMalformed, len(c.ID), event.MaxInputIDBytes)
	}
	c.Name = strings.TrimPrefix(c.Name, "/")
	return c, nil
}

// command runs a slash command. Each gets its one terminal event.
func (x *causeDecider) command() {
	c, err := readCommand(x.c.Body)
	if err != nil {
		x.fail(event.FailMalformed, err.Error())
		return
	}
	x.inputID = c.ID
	if !slices.ContainsFunc(Commands(), func(k Command) bool { return k.Name == c.Name }) {
		x.fail(event.FailUnknownCommand, fmt.Sprintf("no command /%s; /help lists them", cut(c.Name, 40)))
		return
	}
	if seq, dup := x.s.seen(x.c.Writer, c.ID); dup {
		x.fail(event.FailDuplicate, fmt.Sprintf("command id %q of %s was taken before, at %d", c.ID, x.c.Writer, seq))
		return
	}
	if c.ID != "" {
		x.emit(event.Perceived{Sequence: x.c.Sequence, InputID: c.ID, Writer: x.c.Writer, Disposition: event.EndedAtOnce})
	}
	answer := x.run(c.Name)
	x.emitIn("", event.UIMessage{Content: answer, Format: event.Markdown})
	x.emit(event.Recorded{Sequence: x.c.Sequence, InputID: c.ID, Command: c.Name, Answer: answer})
	x.ready = true
	x.next()
}

func (x *causeDecider) run(name string) string {
	switch name {
	case "help":
		return help()
	case "reset":
		return x.reset()
	case "cancel":
		return x.cancelRunning()
	case "tools":
		return x.listTools()
	case "provider":
		return x.listProviders()
	}
	return x.metrics()
}

func help() string {
	var b strings.Builder
	for _, c := range Commands() {
		fmt.Fprintf(&b, "- `/%s` — %s\n", c.Name, c.Help)
	}
	return b.String()
}

func (x *causeDecider) reset() string {
	why := "/reset by " + string(x.c.Writer)
	if x.s.Turn != nil {
		x.closeTurn(event.FailReset, why, x.closings, false)
	}
	for _, q := range slices.Clone(x.s.Queue) {
		x.emit(event.TurnFailed{Sequence: q.Sequence, InputID: q.InputID, Code: event.FailReset, Reason: why})
	}
	x.emit(event.SessionReset{By: x.c.Writer})
	return "The conversation was reset."
}

// cancelRunning ends the turn that was open when the command was stored, never
// one that began after.
func (x *causeDecider) cancelRunning() string {
	t := x.s.Turn
	if t == nil || t.Began >= x.c.Sequence {
		return "Nothing was running."
	}
	x.closeTurn(event.FailCancelled, "/cancel by "+string(x.c.Writer), x.closings, false)
	return "The running turn was cancelled."
}

func (x *causeDecider) listTools() string {
	names := x.offered()
	if len(names) == 0 {
		return "No tool is available: no runner has announced one."
	}
	var b strings.Builder
	for _, n := range names {
		spec, ok := x.env.Tools.Lookup(n)
		if !ok && n == planner.ExecuteName {
			spec = planner.ExecuteSpec()
		}
		fmt.Fprintf(&b, "- `%s` — %s\n", n, spec.Description)
	}
	return b.String()
}

func (x *causeDecider) listProviders() string {
	infos := x.env.Executors.Providers()
	if len(infos) == 0 {
		return "No provider is there."
	}
	var b strings.Builder
	for _, p := range infos {
		fmt.Fprintf(&b, "- **%s**, model `%s`. %s\n", p.Name, p.Model, p.Note)
	}
	return b.String()
}

func (x *causeDecider) metrics() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Turns: %d, of which failed: %d. Commits: %d. Tokens: %d in, %d out.\n",
		x.s.Turns, x.s.Failed, x.s.Commits, x.s.Usage.InputTokens, x.s.Usage.OutputTokens)
	if x.env.Stats == nil {
		return b.String()
	}
	for _, t := range x.env.Stats() {
		fmt.Fprintf(&b, "- `%s`: used %d times, success %.0f %%, mean %s\n",
			t.Tool, t.Used, 100*t.SuccessRate, t.MeanLatency)
	}
	return b.String()
}

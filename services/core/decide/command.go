package decide

import (
	"fmt"
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/planner"
)

// command runs a slash command and gives it its one terminal event.
func (x *causeDecider) command(c event.Command) {
	x.inputID = c.ID
	if x.c.err != nil {
		x.fail(event.FailMalformed, x.c.err.Error())
		return
	}
	if !commands.Known(c.Name) {
		x.fail(event.FailUnknownCommand, commands.Unknown(c.Name))
		return
	}
	if seq, dup := x.s.seen(x.c.Writer, c.ID); dup {
		x.fail(event.FailDuplicate, fmt.Sprintf("duplicate command id %q from %s; first used at sequence %d",
			c.ID, x.c.Writer, seq))
		return
	}
	if x.s.Deleted != nil && c.Name != commands.Undelete {
		x.fail(event.FailLocked, x.s.LockedWhy())
		return
	}
	if x.s.Deleted != nil && x.s.Deleted.Gone {
		x.fail(event.FailLocked, "the content of this session was removed; it cannot be brought back")
		return
	}
	if c.ID != "" {
		x.emit(event.Perceived{Sequence: x.c.Sequence, InputID: c.ID, Writer: x.c.Writer, Disposition: event.EndedAtOnce})
	}
	paused := x.s.Paused != nil
	answer, chosen := x.run(c)
	x.emitIn("", event.UIMessage{Content: answer, Format: event.Markdown})
	x.emit(event.Recorded{Sequence: x.c.Sequence, InputID: c.ID, Command: c.Name, Answer: answer, Provider: chosen})
	x.ready = true
	if paused && x.s.Paused == nil {
		x.goOn()
	}
	x.next()
}

// run does what a known command says. It returns its answer and, for /provider, what the
// session uses from now on.
func (x *causeDecider) run(c event.Command) (answer, chosen string) {
	switch c.Name {
	case commands.Reset:
		answer = x.reset()
	case commands.Repair:
		answer = x.repair()
	case commands.Delete:
		answer = x.delete()
	case commands.Undelete:
		answer = x.undelete()
	case commands.Pause:
		answer = x.pause()
	case commands.Resume:
		answer = x.resume()
	case commands.Cancel:
		answer = x.cancelRunning()
	case commands.Tools:
		answer = x.listTools()
	case commands.Plugins:
		answer = x.listPlugins()
	case commands.Provider:
		return x.chooseProvider(c.Args)
	case commands.Metrics:
		answer = x.metrics()
	case commands.Replay:
		answer = x.replay(c.Args)
	case commands.Quit: // of a UI that sends it instead of leaving by itself
		answer = commands.Left
	default:
		answer = commands.List()
	}
	return answer, ""
}

func (x *causeDecider) reset() string {
	x.endAll("/reset by " + string(x.c.Writer))
	x.emit(event.SessionReset{By: x.c.Writer, Stops: x.s.stops("")})
	if x.s.Paused != nil {
		return commands.WasReset + " " + commands.StillPaused
	}
	return commands.WasReset
}

// endAll ends the open turn and the inputs that wait.
func (x *causeDecider) endAll(why string) {
	if x.s.Turn != nil {
		x.closeTurn(event.FailReset, why, x.closings, false)
	}
	for _, q := range slices.Clone(x.s.Queue) {
		x.emit(event.TurnFailed{Sequence: q.Sequence, InputID: q.InputID, Code: event.FailReset, Reason: why})
	}
}

// repair unlocks a session that was locked because its log is damaged.
func (x *causeDecider) repair() string {
	d := x.s.Damage
	switch {
	case d == nil && x.s.Locked != "":
		return commands.IntactButLocked
	case d == nil:
		return commands.Intact
	}
	open := x.s.clone()
	open.Locked, open.Damage = "", nil
	x.emit(event.Checkpoint{State: encode(open), Reason: "/repair by " + string(x.c.Writer)})
	return commands.Repaired(d.Rev, d.Turns, d.Why)
}

// cancelRunning ends the turn that was open when the command was stored, never a
// later one.
func (x *causeDecider) cancelRunning() string {
	t := x.s.Turn
	if t == nil || t.Began >= x.c.Sequence {
		return commands.NotRunning
	}
	x.closeTurn(event.FailCancelled, "/cancel by "+string(x.c.Writer), x.closings, false)
	return commands.Cancelled
}

func (x *causeDecider) listTools() string {
	var tools []commands.Tool
	for _, name := range x.offered() {
		spec, ok := x.env.Tools.Lookup(name)
		if !ok {
			spec, _ = planner.Own(name)
		}
		tools = append(tools, commands.Tool{Name: name, Description: spec.Description})
	}
	return commands.ListTools(tools)
}

func (x *causeDecider) listPlugins() string {
	if x.env.Plugins == nil {
		return commands.NoPluginList
	}
	return commands.ListPlugins(x.env.Plugins())
}

func (x *causeDecider) metrics() string {
	s := x.s
	shown := commands.Session{
		Turns: s.Turns, Failed: s.Failed, Waiting: len(s.Queue), Commits: s.Commits, Usage: s.Usage,
		Calls: len(s.Breaker.Recent), CallFailures: s.Breaker.failures(), LockAt: lockAt,
	}
	if s.Locked != "" {
		shown.Locked = s.LockedWhy()
	}
	var tools []commands.ToolUse
	if x.env.Stats != nil {
		tools = x.env.Stats()
	}
	var hooks []commands.HookUse
	if x.env.HookStats != nil {
		hooks = x.env.HookStats()
	}
	return commands.Statistics(shown, tools, hooks)
}

// replay describes turns as the log records them.
func (x *causeDecider) replay(args []string) string {
	of, err := commands.ReadReplay(args)
	if err != nil || x.env.Replay == nil {
		return commands.NoLog
	}
	account, err := x.env.Replay(of)
	return commands.Replayed(of, account, err)
}

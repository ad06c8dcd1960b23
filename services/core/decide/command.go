package decide

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/nearest"
)

// Command describes a slash command.
type Command struct {
	Name string // without the slash
	Args string // what may follow, as people write it; empty: nothing
	Help string

	check func(args []string) error // nil: no arguments
	run   func(x *causeDecider, args []string) string
}

// Commands lists the slash commands that core answers, in every UI alike. They
// bypass the model, and each ends in one terminal event, like an input.
func Commands() []Command { return slices.Clone(commands) }

var commands []Command

func init() { // not an initialiser: help lists them
	commands = []Command{
		{"help", "", "what can be typed", nil, (*causeDecider).help},
		{"reset", "", "end the running turn, forget the conversation, unlock the session", nil, (*causeDecider).reset},
		{
			"repair", "", "open a session that was locked because its log is damaged, with what could be saved of it",
			nil, (*causeDecider).repair,
		},
		{"cancel", "", "end the running turn; calls that ran are reported as they are", nil, (*causeDecider).cancelRunning},
		{"tools", "", "the tools that the agent may use now", nil, (*causeDecider).listTools},
		{"plugins", "", "the plugins, their hooks and tools", nil, (*causeDecider).listPlugins},
		{"provider", "", "which language model answers", nil, (*causeDecider).listProviders},
		{"metrics", "", "figures of this session, of the tools and of the hooks", nil, (*causeDecider).metrics},
		{"replay", "[n | turn]", "an account of the last turn, of the last n, or of one by its id", checkReplay, (*causeDecider).replay},
		{"quit", "", "leave; the session stays", nil, (*causeDecider).quit},
	}
}

func commandOf(name string) (Command, bool) {
	i := slices.IndexFunc(commands, func(c Command) bool { return c.Name == name })
	if i < 0 {
		return Command{}, false
	}
	return commands[i], true
}

// unknownCommand says what to type instead. UIs take a text that begins with two
// slashes for one that begins with one.
func unknownCommand(name string) string {
	s := "no command /" + onOneLine(cut(name, 40))
	if near := nearestCommands(name); len(near) > 0 {
		s += "; did you mean /" + strings.Join(near, " or /") + "?"
	}
	return s + " (/help lists all; begin with // to say a text that begins with a slash)"
}

// nearestCommands are the commands that somebody may have meant: those that begin so, else
// those that are the fewest slips of the keyboard away, two at most.
func nearestCommands(name string) []string {
	name = strings.ToLower(cut(name, 40))
	var begin, near []string
	least := 2
	for _, c := range commands {
		if name != "" && strings.HasPrefix(c.Name, name) {
			begin = append(begin, c.Name)
		}
		switch d := nearest.Slips(name, c.Name); {
		case d > least || d >= len(c.Name)-1:
		case d < least:
			near, least = []string{c.Name}, d
		default:
			near = append(near, c.Name)
		}
	}
	if len(begin) > 0 {
		return begin
	}
	return near
}

// readCommand reads a command and checks the arguments of one that is known. What
// was read comes with the error, too.
func readCommand(body []byte) (event.Command, error) {
	var c event.Command
	if err := event.DecodeCause(body, &c); err != nil {
		return event.Command{}, err
	}
	if len(c.ID) > event.MaxInputIDBytes {
		return event.Command{}, fmt.Errorf("%w: id has %d bytes, at most %d", event.ErrMalformed, len(c.ID), event.MaxInputIDBytes)
	}
	c.Name = strings.TrimPrefix(c.Name, "/")
	k, known := commandOf(c.Name)
	if !known {
		return c, nil
	}
	check := k.check
	if check == nil {
		check = noArguments
	}
	if err := check(c.Args); err != nil {
		return c, fmt.Errorf("%w: args: /%s %w", event.ErrMalformed, c.Name, err)
	}
	return c, nil
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, got %q; leave it out", cut(strings.Join(args, " "), 80))
	}
	return nil
}

// maxReplay is how many turns /replay tells of at once.
const maxReplay = 10

func checkReplay(args []string) error {
	_, err := readReplay(args)
	return err
}

// readReplay reads the arguments of /replay.
func readReplay(args []string) (Replay, error) {
	switch len(args) {
	case 0:
		return Replay{Last: 1}, nil
	case 1:
	default:
		return Replay{}, fmt.Errorf("takes one argument, a number of turns or a turn's id, got %d", len(args))
	}
	if n, err := strconv.Atoi(args[0]); err == nil {
		if n < 1 || n > maxReplay {
			return Replay{}, fmt.Errorf("tells of 1 to %d turns, got %d", maxReplay, n)
		}
		return Replay{Last: n}, nil
	}
	if seq, ok := strings.CutPrefix(args[0], "t"); ok {
		if n, err := strconv.ParseUint(seq, 10, 64); err == nil && n > 0 {
			return Replay{Turn: TurnID(n)}, nil
		}
	}
	return Replay{}, fmt.Errorf("takes a number of turns or a turn's id such as t42, got %q", cut(args[0], 40))
}

// command runs a slash command. Each gets its one terminal event.
func (x *causeDecider) command() {
	c, err := readCommand(x.c.Body)
	x.inputID = c.ID
	if err != nil {
		x.fail(event.FailMalformed, err.Error())
		return
	}
	k, known := commandOf(c.Name)
	if !known {
		x.fail(event.FailUnknownCommand, unknownCommand(c.Name))
		return
	}
	if seq, dup := x.s.seen(x.c.Writer, c.ID); dup {
		x.fail(event.FailDuplicate, fmt.Sprintf("command id %q of %s was taken before, at %d", c.ID, x.c.Writer, seq))
		return
	}
	if c.ID != "" {
		x.emit(event.Perceived{Sequence: x.c.Sequence, InputID: c.ID, Writer: x.c.Writer, Disposition: event.EndedAtOnce})
	}
	answer := k.run(x, c.Args)
	x.emitIn("", event.UIMessage{Content: answer, Format: event.Markdown})
	x.emit(event.Recorded{Sequence: x.c.Sequence, InputID: c.ID, Command: c.Name, Answer: answer})
	x.ready = true
	x.next()
}

func (x *causeDecider) reset([]string) string {
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
func (x *causeDecider) cancelRunning([]string) string {
	t := x.s.Turn
	if t == nil || t.Began >= x.c.Sequence {
		return "Nothing was running."
	}
	x.closeTurn(event.FailCancelled, "/cancel by "+string(x.c.Writer), x.closings, false)
	return "The running turn was cancelled."
}

// quit answers a UI that passes the command on instead of leaving by itself.
func (x *causeDecider) quit([]string) string {
	return "There is nothing to leave here: the session stays, and goes on whenever somebody speaks in it. " +
		"A terminal leaves by itself; a page is just closed."
}

// replay tells of turns as the log has them.
func (x *causeDecider) replay(args []string) string {
	q, err := readReplay(args)
	if err != nil || x.env.Replay == nil {
		return "The log cannot be read here."
	}
	text, err := x.env.Replay(q)
	switch {
	case errors.Is(err, ErrNoTurn) && q.Turn != "":
		return fmt.Sprintf("No turn %s is in this session's log, or it is too far back to be told of here.", q.Turn)
	case errors.Is(err, ErrNoTurn):
		return "There was no turn in this session yet."
	case err != nil:
		return "The log could not be read: " + cut(err.Error(), maxReason)
	}
	return cut(text, maxAnswerBytes)
}

// ErrNoTurn is what [Env.Replay] returns when the log has no such turn.
var ErrNoTurn = errors.New("no such turn")

// Replay says which turns are to be told of: one of the fields is set.
type Replay struct {
	Last int    // so many, the one that runs included
	Turn string // this one
}

// PluginUse is a plugin as /plugins shows it.
type PluginUse struct {
	Name    subject.Plugin
	Version string
	State   string
	Reason  string // of the state, if there is one
	Hooks   []string
	Tools   []string
	Other   []string // what it offers beside: providers, storage, listeners, guides
}

// HookUse is what asking one plugin at one point was like on this core.
type HookUse struct {
	Point, Plugin string
	Asked, Failed int64
	P50US, P99US  int64 // microseconds
}

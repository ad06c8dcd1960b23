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
	Args string // usage of the arguments; empty: none
	Help string

	check func(args []string) error // nil: no arguments
	run   func(x *causeDecider, args []string) string
}

// Commands lists the slash commands that core answers, the same in every UI. They
// bypass the model. Each ends with one terminal event, like an input.
func Commands() []Command { return slices.Clone(commands) }

var commands []Command

func init() { // not an initializer, because help refers to commands
	commands = []Command{
		{"help", "", "list the commands", nil, (*causeDecider).help},
		{"reset", "", "end the running turn, forget the conversation, unlock the session", nil, (*causeDecider).reset},
		{
			"repair", "", "unlock a session whose log is damaged, with whatever could be recovered",
			nil, (*causeDecider).repair,
		},
		{"cancel", "", "cancel the running turn and report which of its tool calls ran", nil, (*causeDecider).cancelRunning},
		{"tools", "", "list the tools that the agent can use now", nil, (*causeDecider).listTools},
		{"plugins", "", "list the plugins with their hooks and tools", nil, (*causeDecider).listPlugins},
		{"provider", "", "show which language model answers", nil, (*causeDecider).listProviders},
		{"metrics", "", "show statistics of this session, its tools and the hooks", nil, (*causeDecider).metrics},
		{
			"replay", "[n | turn]", "show what happened in the last turn, the last n turns, or one turn by id",
			checkReplay, (*causeDecider).replay,
		},
		{"quit", "", "leave; the session stays open", nil, (*causeDecider).quit},
	}
}

func commandOf(name string) (Command, bool) {
	i := slices.IndexFunc(commands, func(c Command) bool { return c.Name == name })
	if i < 0 {
		return Command{}, false
	}
	return commands[i], true
}

// unknownCommand suggests what to type instead. UIs send a text that begins with two
// slashes as a text that begins with one.
func unknownCommand(name string) string {
	s := "unknown command /" + onOneLine(cut(name, 40))
	if near := nearestCommands(name); len(near) > 0 {
		s += "; did you mean /" + strings.Join(near, " or /") + "?"
	}
	return s + " (/help lists all commands; begin with // to send text that begins with a slash)"
}

// nearestCommands returns the commands that the user may have meant: those with this
// prefix, else those with the fewest typing errors, at most two errors away.
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

// readCommand reads a command and, if it is known, checks its arguments. With an error
// about the arguments it returns the command, too.
func readCommand(body []byte) (event.Command, error) {
	var c event.Command
	if err := event.DecodeCause(body, &c); err != nil {
		return event.Command{}, err
	}
	if len(c.ID) > event.MaxInputIDBytes {
		return event.Command{}, fmt.Errorf("%w: id has %d bytes, at most %d", event.ErrMalformed, len(c.ID),
			event.MaxInputIDBytes)
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
		return fmt.Errorf("takes no arguments, got %q; remove it", cut(strings.Join(args, " "), 80))
	}
	return nil
}

// maxReplay is how many turns /replay shows at once.
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
			return Replay{}, fmt.Errorf("shows 1 to %d turns, got %d", maxReplay, n)
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

// command runs a slash command and gives it its one terminal event.
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
		x.fail(event.FailDuplicate, fmt.Sprintf("duplicate command id %q from %s; first used at sequence %d",
			c.ID, x.c.Writer, seq))
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

// cancelRunning ends the turn that was open when the command was stored, never a
// later one.
func (x *causeDecider) cancelRunning([]string) string {
	t := x.s.Turn
	if t == nil || t.Began >= x.c.Sequence {
		return "Nothing was running."
	}
	x.closeTurn(event.FailCancelled, "/cancel by "+string(x.c.Writer), x.closings, false)
	return "The running turn was cancelled."
}

// quit answers a UI that sends the command to core instead of leaving by itself.
func (x *causeDecider) quit([]string) string {
	return "/quit only closes a terminal; to leave the page, close it. The session stays open."
}

// replay describes turns as the log records them.
func (x *causeDecider) replay(args []string) string {
	q, err := readReplay(args)
	if err != nil || x.env.Replay == nil {
		return "The log cannot be read here."
	}
	text, err := x.env.Replay(q)
	switch {
	case errors.Is(err, ErrNoTurn) && q.Turn != "":
		return fmt.Sprintf("Turn %s is not in this session's log, or is too old to be shown here.", q.Turn)
	case errors.Is(err, ErrNoTurn):
		return "This session has no turns yet."
	case err != nil:
		return "The log could not be read: " + cut(err.Error(), maxReason)
	}
	return cut(text, maxAnswerBytes)
}

// ErrNoTurn is what [Env.Replay] returns when the log has no such turn.
var ErrNoTurn = errors.New("no such turn")

// Replay selects the turns to describe. One of its fields is set.
type Replay struct {
	Last int    // the last turns, including the running one
	Turn string // the turn with this id
}

// PluginUse describes a plugin, for /plugins.
type PluginUse struct {
	Name    subject.Plugin
	Version string
	State   string
	Reason  string // for the state, if any
	Hooks   []string
	Tools   []string
	Other   []string // other offers: providers, storage, listeners, guides
}

// HookUse holds this core's statistics of asking one plugin at one point.
type HookUse struct {
	Point, Plugin string
	Asked, Failed int64
	P50US, P99US  int64 // microseconds
}

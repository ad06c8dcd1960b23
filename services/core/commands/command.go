package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/nearest"
	"skandha.dev/services/internal/text"
)

// The names of the commands.
const (
	Help     = "help"
	Reset    = "reset"
	Repair   = "repair"
	Cancel   = "cancel"
	Pause    = "pause"
	Resume   = "resume"
	Tools    = "tools"
	Plugins  = "plugins"
	Provider = "provider"
	Metrics  = "metrics"
	Replay   = "replay"
	Delete   = "delete"
	Undelete = "undelete"
	Quit     = "quit"
)

// Command describes a slash command.
type Command struct {
	Name string // without the slash
	Args string // usage of the arguments; empty: none
	Help string
}

// All lists the slash commands that core answers, the same in every UI. They bypass
// the model. Each ends with one terminal event, like an input.
func All() []Command { return slices.Clone(all) }

var all = []Command{
	{Help, "", "list the commands"},
	{Reset, "", "end the running turn, forget the conversation, unlock the session"},
	{Repair, "", "unlock a session whose log is damaged, with whatever could be recovered"},
	{Cancel, "", "cancel the running turn and report which of its tool calls ran"},
	{Pause, "", "start nothing new in this session until /resume; what runs is finished"},
	{Resume, "", "continue a paused session"},
	{Tools, "", "list the tools that the agent can use now"},
	{Plugins, "", "list the plugins with their hooks and tools"},
	{Provider, "[name[/model] | default]", "show the language models, or choose the one that answers this session"},
	{Metrics, "", "show statistics of this session, its tools and the hooks"},
	{Replay, "[n | turn]", "show what happened in the last turn, the last n turns, or one turn by id"},
	{Delete, "", "delete the session; its content is removed after a while"},
	{Undelete, "", "bring back a session that was deleted, while its content is still there"},
	{Quit, "", "leave; the session stays open"},
}

// Known reports whether there is a command with this name.
func Known(name string) bool {
	return slices.ContainsFunc(all, func(c Command) bool { return c.Name == name })
}

// Unknown suggests what to type instead. UIs send a text that begins with two slashes
// as a text that begins with one.
func Unknown(name string) string {
	s := "unknown command /" + oneLine(text.Cut(name, maxName))
	if near := nearestTo(name); len(near) > 0 {
		s += "; did you mean /" + strings.Join(near, " or /") + "?"
	}
	return s + " (/help lists all commands; begin with // to send text that begins with a slash)"
}

// maxName is how many bytes of what was typed are quoted.
const maxName = 40

// nearestTo returns the commands that the user may have meant: those with this prefix,
// else those with the fewest typing errors, at most two errors away.
func nearestTo(name string) []string {
	name = strings.ToLower(text.Cut(name, maxName))
	var begin, near []string
	least := 2
	for _, c := range all {
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

// Check returns an error if the command does not take these arguments. The caller
// handles unknown commands.
func Check(c event.Command) error {
	check := noArguments
	switch {
	case !Known(c.Name):
		return nil
	case c.Name == Provider:
		check = atMostOne
	case c.Name == Replay:
		check = replayArguments
	}
	if err := check(c.Args); err != nil {
		return fmt.Errorf("%w: args: /%s %w", event.ErrMalformed, c.Name, err)
	}
	return nil
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, got %q; remove it", text.Cut(strings.Join(args, " "), 80))
	}
	return nil
}

func atMostOne(args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("takes at most one argument, got %d", len(args))
	}
	return nil
}

func replayArguments(args []string) error {
	_, err := ReadReplay(args)
	return err
}

// Turns selects the turns that /replay describes. One of its fields is set.
type Turns struct {
	Last int    // the last turns, including the running one
	Turn string // the turn with this id
}

// maxReplay is how many turns /replay shows at once.
const maxReplay = 10

// ReadReplay reads the arguments of /replay.
func ReadReplay(args []string) (Turns, error) {
	switch len(args) {
	case 0:
		return Turns{Last: 1}, nil
	case 1:
	default:
		return Turns{}, fmt.Errorf("takes one argument, a number of turns or a turn's id, got %d", len(args))
	}
	if n, err := strconv.Atoi(args[0]); err == nil {
		if n < 1 || n > maxReplay {
			return Turns{}, fmt.Errorf("shows 1 to %d turns, got %d", maxReplay, n)
		}
		return Turns{Last: n}, nil
	}
	if seq, ok := strings.CutPrefix(args[0], "t"); ok {
		if n, err := strconv.ParseUint(seq, 10, 64); err == nil && n > 0 {
			return Turns{Turn: event.TurnID(n)}, nil
		}
	}
	return Turns{}, fmt.Errorf("takes a number of turns or a turn's id such as t42, got %q", text.Cut(args[0], maxName))
}

package commands

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/nearest"
	"skandha.dev/services/internal/text"
)

// Answers that depend on nothing.
const (
	WasReset        = "The conversation was reset."
	Cancelled       = "The running turn was cancelled."
	NotPaused       = "The session is not paused."
	StillPaused     = "It is still paused; /resume continues it."
	NotRunning      = "Nothing was running."
	Left            = "/quit only closes a terminal; to leave the page, close it. The session stays open."
	NoPluginList    = "The list of plugins is not available here."
	NoLog           = "The log cannot be read here."
	NotDeleted      = "This session was not deleted."
	Intact          = "Nothing to repair: this session's log is intact."
	IntactButLocked = "This session's log is intact; /reset unlocks the session."
)

// The bounds of an answer.
const (
	maxListed = 100       // plugins, tools or hooks
	maxLine   = 1000      // bytes of what others supply on one line
	maxAnswer = 200 << 10 // bytes of what /replay shows
)

// List answers /help.
func List() string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "- `%s` — %s\n", strings.TrimSpace("/"+c.Name+" "+c.Args), c.Help)
	}
	return b.String()
}

// Tool is a tool that the agent can use.
type Tool struct{ Name, Description string }

// ListTools answers /tools.
func ListTools(tools []Tool) string {
	if len(tools) == 0 {
		return "No tools are available: no runner has announced any."
	}
	var b strings.Builder
	for _, t := range tools {
		fmt.Fprintf(&b, "- %s — %s\n", asCode(t.Name), asText(t.Description))
	}
	return b.String()
}

// DefaultProvider is the argument of /provider that returns to the agent's own choice.
const DefaultProvider = "default"

// ProviderReset answers /provider default.
const ProviderReset = "The agent's own choice of provider applies again."

// ListProviders answers /provider; use is the session's provider, empty if it may be any.
func ListProviders(infos []provider.Info, use string) string {
	if len(infos) == 0 {
		return "No provider is available."
	}
	var b strings.Builder
	for _, p := range infos {
		fmt.Fprintf(&b, "- **%s**, model %s. %s", p.Name, asCode(p.Model), asText(p.Note))
		if p.Name == use {
			b.WriteString(" — answers this session")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ProviderChosen answers /provider with a name.
func ProviderChosen(name, model string) string {
	if model != "" {
		model = ", model " + asCode(model)
	}
	return fmt.Sprintf("From now on **%s**%s answers this session; `/provider %s` undoes it.", name, model, DefaultProvider)
}

// NoSuchProvider answers /provider with an unknown name.
func NoSuchProvider(name string, all []string) string {
	s := "No provider " + asCode(text.Cut(name, maxName)) + " is available"
	switch near := nearest.Word(name, all); {
	case len(all) == 0:
		return s + ", nor any other."
	case near != "":
		s += "; did you mean " + asCode(near) + "?"
	default:
		s += "."
	}
	return s + " Available: " + asCodes(all) + "."
}

// Plugin describes a plugin, for /plugins.
type Plugin struct {
	Name    subject.Plugin
	Version string
	State   string
	Reason  string // for the state, if any
	Hooks   []string
	Tools   []string
	Other   []string // other offers: providers, storage, listeners, guides
}

// ListPlugins answers /plugins.
func ListPlugins(plugins []Plugin) string {
	if len(plugins) == 0 {
		return "No plugins are registered."
	}
	var b strings.Builder
	for i, p := range plugins {
		if i == maxListed {
			fmt.Fprintf(&b, "- … and %d more\n", len(plugins)-i)
			break
		}
		state := p.State
		if p.Reason != "" {
			state += ": " + oneLine(p.Reason)
		}
		fmt.Fprintf(&b, "- **%s** %s — %s\n", p.Name, p.Version, state)
		for _, part := range []struct {
			what  string
			names []string
		}{{"hooks", p.Hooks}, {"tools", p.Tools}, {"offers", p.Other}} {
			if len(part.names) > 0 {
				fmt.Fprintf(&b, "  - %s: %s\n", part.what, asCodes(part.names))
			}
		}
	}
	return b.String()
}

// ErrNoTurn says that the log has no such turn.
var ErrNoTurn = errors.New("no such turn")

// Replayed answers /replay with the account of the turns, or with the error of reading
// them: [ErrNoTurn], or one of the log.
func Replayed(of Turns, account string, err error) string {
	switch {
	case errors.Is(err, ErrNoTurn) && of.Turn != "":
		return fmt.Sprintf("Turn %s is not in this session's log, or is too old to be shown here.", of.Turn)
	case errors.Is(err, ErrNoTurn):
		return "This session has no turns yet."
	case err != nil:
		return "The log could not be read: " + text.Cut(err.Error(), maxLine)
	}
	return text.Cut(account, maxAnswer)
}

// Repairable is the part of a lock's reason that offers /repair, with the number of
// turns that it would recover.
func Repairable(turns int) string {
	return fmt.Sprintf("/repair continues with what was recovered, %s", count(turns, "turn"))
}

// Repaired answers /repair with the commit up to which the session was recovered, 0 if
// nothing was, the number of its turns, and what damaged the log.
func Repaired(rev uint64, turns int, why string) string {
	if rev == 0 {
		return "The session is unlocked and empty: nothing could be recovered."
	}
	return fmt.Sprintf("The session is unlocked, as of commit %d, after %s. Everything later is lost (%s).",
		rev, count(turns, "turn"), oneLine(why))
}

// count formats a number of things, in the singular or plural.
func count[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// mean formats a mean duration for people.
func mean(d time.Duration) string {
	if d < time.Millisecond {
		return "under 1ms"
	}
	return d.Round(time.Millisecond).String()
}

var plain = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "`", "\\`", "[", `\[`, "<", `\<`)

// asText returns plain text as Markdown, with special characters escaped.
func asText(s string) string { return plain.Replace(oneLine(s)) }

// asCode formats a name as Markdown code, whatever characters it contains.
func asCode(name string) string {
	return "`" + strings.ReplaceAll(oneLine(name), "`", "'") + "`"
}

func asCodes(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = asCode(n)
	}
	return strings.Join(out, ", ")
}

func oneLine(s string) string { return text.Cut(strings.Join(strings.Fields(s), " "), maxLine) }

// Deleted answers /delete.
func Deleted(until time.Time) string {
	return fmt.Sprintf("The session was deleted. /undelete brings it back until %s; then its content is removed.",
		until.Format(time.RFC3339))
}

// Undeleted answers /undelete.
func Undeleted(turns int) string {
	return fmt.Sprintf("The session is back, with %s.", count(turns, "turn"))
}

// WasPaused answers /pause. running says that a model or a tool still works.
func WasPaused(running bool) string {
	if running {
		return "Paused. What runs is finished and kept; nothing else starts until /resume."
	}
	return "Paused. Nothing starts until /resume."
}

// AlreadyPaused answers /pause in a paused session.
func AlreadyPaused(by subject.Writer, since time.Time) string {
	return fmt.Sprintf("The session is already paused, by %s, since %s; /resume continues it.", by, since.Format(time.RFC3339))
}

// Resumed answers /resume.
func Resumed(by subject.Writer, since time.Time, waiting int) string {
	s := fmt.Sprintf("Resumed; %s had paused the session at %s.", by, since.Format(time.RFC3339))
	if waiting > 0 {
		s += " " + count(waiting, "input") + " waited."
	}
	return s
}

// Waits is the notice about an input to a paused session.
func Waits(by subject.Writer) string {
	return fmt.Sprintf("The session is paused by %s: the input waits until /resume.", by)
}

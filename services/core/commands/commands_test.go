package commands_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/commands"
)

func TestEveryCommandTakesWhatItDeclares(t *testing.T) {
	for _, c := range commands.All() {
		if !commands.Known(c.Name) || commands.Check(event.Command{Name: c.Name}) != nil {
			t.Errorf("/%s is refused", c.Name)
		}
		err := commands.Check(event.Command{Name: c.Name, Args: []string{"1"}})
		if takes := err == nil; takes != (c.Args != "") {
			t.Errorf("/%s 1: %v", c.Name, err)
		}
	}
	err := commands.Check(event.Command{Name: commands.Help, Args: []string{"x"}})
	if !errors.Is(err, event.ErrMalformed) {
		t.Errorf("an argument of /help: %v", err)
	}
}

func TestAnswersEscapeWhatOthersSupply(t *testing.T) {
	got := commands.ListTools([]commands.Tool{{Name: "odd`name", Description: "**loud**\n<b>"}})
	if want := "- `odd'name` — \\*\\*loud\\*\\* \\<b>\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got = commands.ListPlugins(make([]commands.Plugin, 103))
	if !strings.HasSuffix(got, "- … and 3 more\n") {
		t.Errorf("the list is not bounded: %q", got[len(got)-40:])
	}
}

func TestReplayedNamesTheTurnThatIsMissing(t *testing.T) {
	for of, want := range map[commands.Turns]string{
		{Turn: "t9"}: "Turn t9 is not in this session's log, or is too old to be shown here.",
		{Last: 2}:    "This session has no turns yet.",
	} {
		if got := commands.Replayed(of, "", commands.ErrNoTurn); got != want {
			t.Errorf("%+v: %q", of, got)
		}
	}
}

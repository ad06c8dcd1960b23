package client

import (
	"strings"

	"skandha.dev/pkg/event"
)

// Typed parses the text that a user typed in any UI: a slash command, or a message for
// the agent. Two slashes begin a message that begins with one; a single slash asks for the
// list of commands.
func Typed(text string) (say string, command *event.Command) {
	rest, slash := strings.CutPrefix(text, "/")
	if !slash {
		return text, nil
	}
	if strings.HasPrefix(rest, "/") {
		return rest, nil
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		words = []string{"help"}
	}
	return "", &event.Command{Name: words[0], Args: words[1:]}
}

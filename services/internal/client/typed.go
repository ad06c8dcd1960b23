package client

import (
	"strings"

	"skandha.dev/pkg/event"
)

// Typed reads what a person has typed, in whichever UI: a slash command, or else what
// is to be said. Two slashes begin a text that begins with one; a slash alone asks
// what there is.
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

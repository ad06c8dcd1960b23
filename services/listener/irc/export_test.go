package irc

import "skandha.dev/services/listener/chat"

// Parsed returns the text of a line's message, as the gateway reads it.
func Parsed(line string) (text string, ok bool) {
	m, ok := parse(line)
	text, _ = chat.Addressed(unformatted(m.param(1)), "skandha")
	return text, ok
}

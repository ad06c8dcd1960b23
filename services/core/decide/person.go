package decide

import (
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// ForPerson reports whether a person waits for what an input asks for: it is from the UI bridge, names
// its sender, or is a message of a chat or of e-mail. Nobody waits for what a schedule, a cron
// entry, a webhook, a watch or a sensor has started.
func ForPerson(w subject.Writer, source string, origin event.Origin, from string) bool {
	kind, _, _ := strings.Cut(source, ":")
	switch {
	case w == subject.ScheduleWriter, kind == "cron", kind == "webhook":
		return false
	case from != "", strings.HasPrefix(string(w), bridge), origin == "":
		return true
	}
	return origin.Kind() == "chat" || origin.Kind() == "email"
}

// ForPerson reports whether a person waits for the turn.
func (t *Turn) ForPerson() bool {
	if t.By != nil { // another session waits, perhaps for a person
		return ForPerson(t.By.Writer, t.By.Source, "", t.By.From)
	}
	return ForPerson(t.Writer, t.Source, t.Origin, t.From)
}

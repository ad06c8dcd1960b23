package decide_test

import (
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

func TestWhatAPersonWaitsFor(t *testing.T) {
	for _, c := range []struct {
		writer subject.Writer
		source string
		origin event.Origin
		from   string
		person bool
	}{
		{"ui-ann", "web", "", "", true},
		{"irc", "irc:ops", "", "ann", true},
		{"irc", "irc:ops", "chat:irc/unknown", "", true},
		{"post", "email:desk@example.org", "email:bob@example.org", "", true},
		{"terminal", "stdin", "", "", true},
		{subject.ScheduleWriter, "schedule:tick", "schedule:tick", "", false},
		{"nightly", "cron:report", "", "", false},
		{"hooks", "webhook:hooks", "webhook:ci", "", false},
		{"plant", "mqtt:plant", "mqtt:plant/temperature", "", false},
	} {
		if got := decide.ForPerson(c.writer, c.source, c.origin, c.from); got != c.person {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

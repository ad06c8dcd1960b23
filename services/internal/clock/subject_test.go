package clock

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
)

func TestCronSubjectsAreReadBack(t *testing.T) {
	for _, entry := range []string{"morning", "a b", "x.y", "", "*"} {
		s := occurredSubject("clock", entry)
		w, got, err := parseOccurred(s)
		if err != nil || w != "clock" || got != entry {
			t.Errorf("%s is read as %s %q, %v; want clock %q", s, w, got, err, entry)
		}
		if strings.Count(scheduleSubject("clock", entry), ".") != 2 || strings.ContainsAny(s, " *>") {
			t.Errorf("%q is no subject of three tokens", s)
		}
	}
}

func TestWhatIsNoOccurrenceIsRefused(t *testing.T) {
	for _, s := range []string{
		"", "occurred.clock", "occurred.a b.c", "occurred.clock.a..b", "fired.clock.a", "occurred.clock.-2",
	} {
		if _, entry, err := parseOccurred(s); !errors.Is(err, subject.ErrInvalidSubject) {
			t.Errorf("%q is read as entry %q, %v; want ErrInvalidSubject", s, entry, err)
		}
	}
}

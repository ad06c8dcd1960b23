package cron

import (
	"fmt"
	"strings"

	"skandha.dev/pkg/subject"
)

// Filters for the schedules and occurrences of all listeners.
const (
	allSchedules   = "cron.*.*"
	allOccurrences = "occurred.*.*"
)

// scheduleSubject returns the subject on which the listener w stores when an entry is next due:
// cron.<listener>.<entry>.
func scheduleSubject(w subject.Writer, entry string) string {
	return "cron." + string(w) + "." + subject.Encode(entry)
}

// occurredSubject returns the subject on which the server publishes that an entry is due:
// occurred.<listener>.<entry>.
func occurredSubject(w subject.Writer, entry string) string {
	return "occurred." + string(w) + "." + subject.Encode(entry)
}

// occurrences returns a filter for the occurrences of all entries of the listener w.
func occurrences(w subject.Writer) string { return "occurred." + string(w) + ".*" }

// parseOccurred parses occurred.<listener>.<entry>.
func parseOccurred(s string) (w subject.Writer, entry string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 3 || t[0] != "occurred" {
		return "", "", fmt.Errorf("%w: %q is not the subject of a cron occurrence", subject.ErrInvalidSubject, s)
	}
	if w, err = subject.Parse[subject.Writer](t[1]); err != nil {
		return "", "", fmt.Errorf("%w: %w", subject.ErrInvalidSubject, err)
	}
	if entry, err = subject.Decode(t[2]); err != nil {
		return "", "", fmt.Errorf("%w: %w", subject.ErrInvalidSubject, err)
	}
	return w, entry, nil
}

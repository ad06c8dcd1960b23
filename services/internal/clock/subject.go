package clock

import (
	"fmt"
	"strings"

	"skandha.dev/pkg/subject"
)

// Filters for the schedules and occurrences of all owners.
const (
	allSchedules   = "cron.*.*"
	allOccurrences = "occurred.*.*"
)

// scheduleSubject returns the subject on which the owner w stores when an entry is next due:
// cron.<owner>.<entry>.
func scheduleSubject(w subject.Writer, entry string) string {
	return "cron." + string(w) + "." + subject.Encode(entry)
}

// occurredSubject returns the subject on which the server publishes that an entry is due:
// occurred.<owner>.<entry>.
func occurredSubject(w subject.Writer, entry string) string {
	return "occurred." + string(w) + "." + subject.Encode(entry)
}

// occurrences returns a filter for the occurrences of all entries of the owner w.
func occurrences(w subject.Writer) string { return "occurred." + string(w) + ".*" }

// parseOccurred parses occurred.<owner>.<entry>.
func parseOccurred(s string) (w subject.Writer, entry string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 3 || t[0] != "occurred" {
		return "", "", fmt.Errorf("%w: %q is not the subject of an occurrence", subject.ErrInvalidSubject, s)
	}
	if w, err = subject.Parse[subject.Writer](t[1]); err != nil {
		return "", "", fmt.Errorf("%w: %w", subject.ErrInvalidSubject, err)
	}
	if entry, err = subject.Decode(t[2]); err != nil {
		return "", "", fmt.Errorf("%w: %w", subject.ErrInvalidSubject, err)
	}
	return w, entry, nil
}

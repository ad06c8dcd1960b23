package subject

import (
	"fmt"
	"strings"
)

// Filters for cron listeners.
const (
	AllCron        = "cron.*.*"
	AllOccurrences = "occurred.*.*"
)

// CronSchedule returns the subject on which the listener w stores when an entry is next due:
// cron.<listener>.<entry>.
func CronSchedule(w Writer, entry string) string { return "cron." + string(w) + "." + Encode(entry) }

// CronOccurred returns the subject on which the server publishes that an entry is due:
// occurred.<listener>.<entry>.
func CronOccurred(w Writer, entry string) string {
	return "occurred." + string(w) + "." + Encode(entry)
}

// CronOccurrences returns a filter for the occurrences of all entries of the listener w.
func CronOccurrences(w Writer) string { return "occurred." + string(w) + ".*" }

// ParseCronOccurred parses occurred.<listener>.<entry>.
func ParseCronOccurred(s string) (w Writer, entry string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 3 || t[0] != "occurred" {
		return "", "", fmt.Errorf("%w: %q is not the subject of a cron occurrence", ErrInvalidSubject, clip(s))
	}
	if w, err = Parse[Writer](t[1]); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	if entry, err = Decode(t[2]); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	return w, entry, nil
}

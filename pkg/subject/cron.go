package subject

import (
	"fmt"
	"strings"
)

// Filters of the clock of the listeners that go by the time.
const (
	AllCron        = "cron.*.*"
	AllOccurrences = "occurred.*.*"
)

// CronSchedule is where the listener w lays down when an entry is next due:
// cron.<listener>.<entry>.
func CronSchedule(w Writer, entry string) string { return "cron." + string(w) + "." + Encode(entry) }

// CronOccurred is where the server publishes that an entry is due:
// occurred.<listener>.<entry>.
func CronOccurred(w Writer, entry string) string {
	return "occurred." + string(w) + "." + Encode(entry)
}

// CronOccurrences matches what is due of all entries of the listener w.
func CronOccurrences(w Writer) string { return "occurred." + string(w) + ".*" }

// ParseCronOccurred reads occurred.<listener>.<entry>.
func ParseCronOccurred(s string) (w Writer, entry string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 3 || t[0] != "occurred" {
		return "", "", fmt.Errorf("%w: %q is no occurrence of a cron entry", ErrInvalidSubject, clip(s))
	}
	if w, err = Parse[Writer](t[1]); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	if entry, err = Decode(t[2]); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	return w, entry, nil
}

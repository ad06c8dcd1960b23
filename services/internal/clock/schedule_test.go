package clock

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// In Berlin the clock goes from 02:00 to 03:00 on 2026-03-29 (at 01:00 UTC), and
// from 03:00 back to 02:00 on 2026-10-25 (at 01:00 UTC).
func TestOccurrencesAcrossSummerTime(t *testing.T) {
	for name, c := range map[string]struct {
		schedule, zone, after string
		want                  string // separated by spaces, UTC
	}{
		"an hour that is skipped: when the clock is put forward": {
			"30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z",
			"2026-03-28T01:30:00Z 2026-03-29T01:00:00Z 2026-03-30T00:30:00Z",
		},
		"several times in the hour that is skipped: once": {
			"15,30,45 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:15:00Z",
		},
		"the first moment behind the skipped hour: once": {
			"0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T01:00:00Z",
		},
		"both sides of the skipped hour, and within: the moment once": {
			"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:00:00Z",
		},
		"an hour that is repeated: the first time alone": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z",
		},
		"asked between the two: the next day": {
			"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z",
		},
		"every hour goes by the time that passes, forward": {
			"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			"2026-03-29T00:30:00Z 2026-03-29T01:30:00Z 2026-03-29T02:30:00Z",
		},
		"and back: both 02:30": {
			"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			"2026-10-25T00:30:00Z 2026-10-25T01:30:00Z 2026-10-25T02:30:00Z",
		},
		"@hourly too": {
			"@hourly", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z 2026-10-25T02:00:00Z",
		},
		"@every too": {
			"@every 90m", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T01:30:00Z 2026-10-25T03:00:00Z",
		},
		"half an hour, on Lord Howe": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:15:00Z",
		},
		"midnight is skipped in Beirut": {
			"0 0 * * *", "Asia/Beirut", "2026-03-28T00:00:00Z", "2026-03-28T22:00:00Z 2026-03-29T21:00:00Z",
		},
		"a day is skipped in Samoa: when the clock is put forward": {
			"0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			"2011-12-29T22:00:00Z 2011-12-30T10:00:00Z 2011-12-30T22:00:00Z",
		},
		"UTC knows no summer": {
			"30 2 * * *", "", "2026-03-28T12:00:00Z", "2026-03-29T02:30:00Z 2026-03-30T02:30:00Z",
		},
		"seconds": {
			"*/30 30 2 * * *", "Europe/Berlin", "2026-06-01T00:00:00Z",
			"2026-06-01T00:30:00Z 2026-06-01T00:30:30Z 2026-06-02T00:30:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSchedule(c.schedule, c.zone)
			if err != nil {
				t.Fatal(err)
			}
			now := at(t, c.after)
			for _, want := range strings.Fields(c.want) {
				if now = s.Next(now); !now.Equal(at(t, want)) {
					t.Fatalf("the next is %s, want %s", now.Format(time.RFC3339), want)
				}
			}
		})
	}
}

// Whatever the schedule and the zone: occurrences go forward, and asking from any
// moment between two gives the later one.
func TestOccurrencesDoNotDependOnWhenOneAsks(t *testing.T) {
	for _, expr := range []string{
		"30 2 * * *", "*/20 1-3 * * *", "17 * * * *", "0 0 * * 0", "@every 47m", "59 23 28-31 * *",
	} {
		for _, zone := range []string{
			"Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "UTC",
		} {
			s, err := ParseSchedule(expr, zone)
			if err != nil {
				t.Fatal(err)
			}
			end := at(t, "2026-12-01T00:00:00Z")
			for now := at(t, "2026-02-01T00:00:00Z"); now.Before(end); {
				next := s.Next(now)
				if !next.After(now) {
					t.Fatalf("%s in %s: after %s comes %s", expr, zone, now, next)
				}
				if got := s.Next(next.Add(-time.Second)); s.passing == nil && !got.Equal(next) {
					t.Fatalf("%s in %s: a second before %s comes %s", expr, zone, next, got)
				}
				now = next
			}
		}
	}
}

func TestTheLatestOfAPeriod(t *testing.T) {
	until := at(t, "2026-11-01T00:00:10Z")
	for _, c := range []struct {
		schedule, after string
		n, want         int
		first           string
	}{
		{"* * * * * *", "2016-01-01T00:00:00Z", 3, 3, "2026-11-01T00:00:08Z"},
		{"@every 1s", "2016-01-01T00:00:00Z", 3, 3, "2026-11-01T00:00:08Z"},
		{"@every 7m", "2026-10-31T23:00:00Z", 100, 8, "2026-10-31T23:07:00Z"},
		{"0 0 1 1 *", "2016-06-01T00:00:00Z", 2, 2, "2025-01-01T00:00:00Z"},
		{"0 0 1 1 *", "2016-06-01T00:00:00Z", 100, 10, "2017-01-01T00:00:00Z"},
		{"0 0 * * *", "2026-10-30T12:00:00Z", 5, 2, "2026-10-31T00:00:00Z"},
		{"0 0 * * *", "2026-11-01T00:00:00Z", 5, 0, ""},
	} {
		s, err := ParseSchedule(c.schedule, "UTC")
		if err != nil {
			t.Fatal(err)
		}
		got := s.Between(at(t, c.after), until, c.n)
		if len(got) != c.want || c.want > 0 && !got[0].Equal(at(t, c.first)) {
			t.Errorf("%s after %s: %d occurrences from %v, want %d from %s", c.schedule, c.after, len(got),
				got[:min(1, len(got))], c.want, c.first)
		}
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for expr, want := range map[string]string{
		"": "schedule", "* * *": "schedule", "61 * * * *": "schedule", "@sometimes": "schedule", "0 0 30 2 *": "never occurs",
		"TZ=UTC 0 0 * * *": "zone", "CRON_TZ=UTC 0 0 * * *": "zone", "@every 1500ms": "whole seconds",
		"@every 0s": "at least one", "@every -1h": "at least one",
	} {
		if _, err := ParseSchedule(expr, "UTC"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", expr, err, want)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "../etc/passwd", "CEST"} {
		if _, err := ParseSchedule("@daily", zone); err == nil || !strings.Contains(err.Error(), "zone") {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
}

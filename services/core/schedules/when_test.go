package schedules

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/coreapi"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// planned reads and checks a schedule as if it were created at a time.
func planned(w coreapi.When, now time.Time) (plan, error) {
	p, err := read(w)
	if err == nil {
		err = p.check(now)
	}
	return p, err
}

func TestWhatIsRefusedNamesTheFieldAndTheFix(t *testing.T) {
	now := at(t, "2026-11-26T12:00:00Z")
	for name, c := range map[string]struct {
		when coreapi.When
		want string
	}{
		"nothing":              {coreapi.When{}, "at, every, cron, when_idle: 0 of them are set; set exactly one"},
		"two":                  {coreapi.When{At: "2027-01-01T09:00", Every: "1h"}, "2 of them are set"},
		"the past":             {coreapi.When{At: "2026-11-26T11:59:59Z"}, "at is 2026-11-26T11:59:59 UTC, which is in the past; it is 2026-11-26T12:00:00 UTC now"},
		"the past, in a zone":  {coreapi.When{At: "2026-11-26T12:30", Zone: "Europe/Berlin"}, "at is 2026-11-26T12:30:00 CET, which is in the past"},
		"now":                  {coreapi.When{At: "2026-11-26T12:00:00Z"}, "in the past"},
		"in a century":         {coreapi.When{At: "2126-11-26T12:00:00Z"}, "within the next 10 years"},
		"no time":              {coreapi.When{At: "tomorrow"}, `at is "tomorrow", want a time such as`},
		"too often":            {coreapi.When{Every: "59s"}, "every is 59s, want 1m0s to"},
		"negative":             {coreapi.When{Every: "-1h"}, "every is -1h"},
		"too long":             {coreapi.When{Every: "99999999h"}, "every is 99999999h, want 1m0s to"},
		"no interval":          {coreapi.When{Every: "daily"}, `every is "daily", want a duration of whole seconds`},
		"a fraction":           {coreapi.When{Every: "61500ms"}, "whole seconds"},
		"idle too short":       {coreapi.When{WhenIdle: "10s"}, "when_idle is 10s, want 1m0s to"},
		"seconds in cron":      {coreapi.When{Cron: "*/10 * * * * *"}, "cron: \"*/10 * * * * *\": want five fields"},
		"every in cron":        {coreapi.When{Cron: "@every 1s"}, "set every"},
		"garbage in cron":      {coreapi.When{Cron: "61 * * * *"}, "cron: \"61 * * * *\""},
		"a day that never is":  {coreapi.When{Cron: "0 0 30 2 *"}, "cron: \"0 0 30 2 *\" never occurs"},
		"an unknown zone":      {coreapi.When{Every: "1h", Zone: "Mars/Olympus"}, `zone: "Mars/Olympus" is not a known time zone`},
		"jitter above a half":  {coreapi.When{Every: "1h", Jitter: "31m"}, "jitter is 31m0s, want at most 30m0s"},
		"jitter, uneven times": {coreapi.When{Cron: "0,10 8 * * *", Jitter: "6m"}, "jitter is 6m0s, want at most 5m0s"},
		"jitter when idle":     {coreapi.When{WhenIdle: "1h", Jitter: "1m"}, "jitter: only what occurs at times has it"},
		"once and a count":     {coreapi.When{At: "2027-01-01T09:00", Count: 2}, "until, count: a schedule with at occurs once"},
		"a negative count":     {coreapi.When{Every: "1h", Count: -1}, "count is -1"},
		"an end in the past":   {coreapi.When{Every: "1h", Until: "2026-11-26T11:00"}, "until is 2026-11-26T11:00:00 UTC, which is in the past"},
		"an end too early":     {coreapi.When{Cron: "@yearly", Until: "2026-12-31T00:00"}, "nothing occurs before; choose a later time"},
	} {
		if _, err := planned(c.when, now); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTheNextOccurrencesAreShownInTheZone(t *testing.T) {
	for name, c := range map[string]struct {
		when coreapi.When
		now  string
		left int
		want string // separated by spaces
	}{
		"on the zone's clock": {
			coreapi.When{At: "2026-11-27 09:00", Zone: "Europe/Berlin"}, "2026-11-26T12:00:00Z", 0, "2026-11-27T09:00:00+01:00",
		},
		"with an offset": {
			coreapi.When{At: "2026-11-27T09:00:00-05:00", Zone: "Europe/Berlin"}, "2026-11-26T12:00:00Z", 0, "2026-11-27T15:00:00+01:00",
		},
		"a time that the clock skips": {
			coreapi.When{At: "2026-03-29T02:30", Zone: "Europe/Berlin"}, "2026-03-28T12:00:00Z", 0, "2026-03-29T03:00:00+02:00",
		},
		"a time that the clock shows twice": {
			coreapi.When{At: "2026-10-25T02:30", Zone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", 0, "2026-10-25T02:30:00+02:00",
		},
		"daily, across the change": {
			coreapi.When{Cron: "30 2 * * *", Zone: "Europe/Berlin"},
			"2026-03-27T12:00:00Z", 0,
			"2026-03-28T02:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00",
		},
		"two are left":   {coreapi.When{Every: "90m"}, "2026-11-26T12:00:00Z", 2, "2026-11-26T13:30:00Z 2026-11-26T15:00:00Z"},
		"until an end":   {coreapi.When{Every: "1h", Until: "2026-11-26T13:00"}, "2026-11-26T12:00:00Z", 0, "2026-11-26T13:00:00Z"},
		"of idleness":    {coreapi.When{WhenIdle: "30m"}, "2026-11-26T12:00:00Z", 0, ""},
		"with few words": {coreapi.When{Cron: "@monthly"}, "2026-11-26T12:00:00Z", 1, "2026-12-01T00:00:00Z"},
	} {
		p, err := planned(c.when, at(t, c.now))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, n := range p.upcoming(at(t, c.now), at(t, c.now), c.left) {
			got = append(got, n.Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// The beat of an interval is that of the last occurrence, whenever somebody looks.
func TestTheNextOccurrencesKeepTheBeat(t *testing.T) {
	last := at(t, "2026-11-26T12:00:07Z")
	p, err := planned(coreapi.When{Every: "1m"}, last)
	if err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]string{
		"2026-11-26T11:59:00Z": "2026-11-26T12:01:07Z", "2026-11-26T12:00:10Z": "2026-11-26T12:01:07Z",
		"2026-11-26T12:01:06Z": "2026-11-26T12:01:07Z", "2026-11-26T12:01:07Z": "2026-11-26T12:02:07Z",
		"2026-11-26T12:05:08Z": "2026-11-26T12:06:07Z",
	} {
		if got := p.upcoming(last, at(t, now), 1); len(got) != 1 || !got[0].Equal(at(t, want)) {
			t.Errorf("at %s: %v, want %s", now, got, want)
		}
	}
}

// Jitter delays each occurrence by up to its length, always the same for the same occurrence, and
// keeps their order.
func TestJitter(t *testing.T) {
	now := at(t, "2026-11-26T12:00:00Z")
	p, err := planned(coreapi.When{Every: "10m", Jitter: "5m"}, now)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Duration]bool{}
	last := now
	for range 200 {
		n := p.next(last)
		late := p.late("k", n).Sub(n)
		if late < 0 || late > 5*time.Minute || p.late("k", n).Sub(n) != late {
			t.Fatalf("%s is late by %s", n, late)
		}
		seen[late] = true
		if got := p.due("k", last, n.Add(late).Add(-time.Second)); !got.IsZero() {
			t.Fatalf("%s is due before it is late by %s", got, late)
		}
		if got := p.due("k", last, n.Add(late)); !got.Equal(n) {
			t.Fatalf("due is %s, want %s", got, n)
		}
		last = n
	}
	if len(seen) < 50 {
		t.Errorf("only %d different delays", len(seen))
	}
}

// Of missed occurrences, the latest is due.
func TestTheLatestMissedOccurrenceIsDue(t *testing.T) {
	for _, c := range []struct {
		when      coreapi.When
		last, now string
		want      string
	}{
		{coreapi.When{Every: "1h"}, "2026-11-26T12:00:00Z", "2026-11-26T12:59:59Z", ""},
		{coreapi.When{Every: "1h"}, "2026-11-26T12:00:00Z", "2026-11-26T13:00:00Z", "13:00"},
		{coreapi.When{Every: "1h"}, "2026-11-26T12:00:00Z", "2026-11-26T17:30:00Z", "17:00"},
		{coreapi.When{Every: "1h", Until: "2026-11-26T14:00"}, "2026-11-26T12:00:00Z", "2026-11-26T17:30:00Z", "14:00"},
		{coreapi.When{At: "2026-11-26T13:00"}, "2026-11-26T12:00:00Z", "2026-11-29T17:30:00Z", "13:00"},
		{coreapi.When{At: "2026-11-26T13:00"}, "2026-11-26T13:00:00Z", "2026-11-29T17:30:00Z", ""},
		{coreapi.When{Cron: "0 0 1 1 *"}, "2026-11-26T12:00:00Z", "2026-12-31T00:00:00Z", ""},
	} {
		p, err := read(c.when)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if d := p.due("k", at(t, c.last), at(t, c.now)); !d.IsZero() {
			got = d.Format("15:04")
		}
		if got != c.want {
			t.Errorf("%+v between %s and %s: %q, want %q", c.when, c.last, c.now, got, c.want)
		}
	}
}

package cron

import (
	"bytes"
	"errors"
	"log/slog"
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

func TestWhatIsDueAfterADowntime(t *testing.T) {
	now := at(t, "2026-06-01T12:00:30Z")
	for _, c := range []struct {
		catchUp CatchUp
		minute  string
		last    string
		want    string
	}{
		{CatchUpNone, "0", "2026-06-01T08:00:00Z", "12:00"},
		{CatchUpLast, "0", "2026-06-01T08:00:00Z", "12:00"},
		{CatchUpAll, "0", "2026-06-01T08:00:00Z", "09:00 10:00 11:00 12:00"},
		{CatchUpNone, "50", "2026-06-01T08:50:00Z", ""},
		{CatchUpLast, "50", "2026-06-01T08:50:00Z", "11:50"},
		{CatchUpAll, "50", "2026-06-01T08:50:00Z", "09:50 10:50 11:50"},
		{CatchUpAll, "50", "2026-05-01T08:50:00Z", "07:50 08:50 09:50 10:50 11:50"},
		{CatchUpLast, "50", "2026-06-01T11:50:00Z", ""},
	} {
		cfg := Config{
			Common:  Common{Session: "s", CatchUp: c.catchUp, CatchUpMax: 5},
			Entries: map[string]Entry{"e": {Schedule: c.minute + " * * * *", Text: "x"}},
		}
		entries, err := cfg.build()
		if err != nil {
			t.Fatal(err)
		}
		e := entries["e"]
		due, newest := e.due(at(t, c.last), now)
		var got []string
		for _, d := range due {
			got = append(got, d.Format("15:04"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s at minute %s since %s: %v, want %s", c.catchUp, c.minute, c.last, got, c.want)
		}
		if len(due) > 0 && !due[len(due)-1].Equal(newest) {
			t.Errorf("%s at minute %s: the newest is %s", c.catchUp, c.minute, newest)
		}
	}
}

func TestAnOutageIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	l := &Listener{name: "cron", log: slog.New(slog.NewTextHandler(&log, nil))}
	lines := func() int { return strings.Count(log.String(), "cron failed; retrying") }
	l.isReady(errors.New("not yet"))
	var waited time.Duration
	for range 120 {
		waited += l.failed(errors.New("the bus is away"), 0)
	}
	if lines() != 1 || waited < 9*time.Minute || waited > 10*time.Minute {
		t.Errorf("%d lines, and pauses of %s altogether", lines(), waited)
	}
	l.isReady(nil) // the bus is back, and goes again
	if first := l.failed(errors.New("the bus is away"), 2*steady); lines() != 2 || first != retryPause {
		t.Errorf("%d lines after the second outage, and a pause of %s", lines(), first)
	}
}

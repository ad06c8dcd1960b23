package cron

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/listener/contract"
)

// CatchUp is what happens with missed occurrences.
type CatchUp string

// The ways to catch up.
const (
	CatchUpNone CatchUp = "none" // they are skipped
	CatchUpLast CatchUp = "last" // the latest one is emitted, unless one in time follows it (default)
	CatchUpAll  CatchUp = "all"  // all are emitted, in order, at most the latest CatchUpMax
)

// The defaults and limits.
const (
	defaultLate       = time.Minute
	defaultCatchUpMax = 100
	MaxCatchUp        = 1000
)

// Common are the settings of a listener for all its entries, or of one entry.
type Common struct {
	Agent      string          `yaml:"agent"`        // default main
	Session    string          `yaml:"session"`      // required
	Zone       string          `yaml:"zone"`         // of the wall clock, e.g. Europe/Berlin; default UTC
	CatchUp    CatchUp         `yaml:"catch_up"`     // none, last or all; default last
	CatchUpMax int             `yaml:"catch_up_max"` // upper limit for all; default 100, at most 1000
	Late       time.Duration   `yaml:"late"`         // how late an occurrence is still in time; default 1m
	Mode       event.InputMode `yaml:"mode"`         // queue or interrupt; default queue
}

// Entry is one line of the crontab.
type Entry struct {
	Common   `yaml:",inline"`
	Schedule string `yaml:"schedule"` // see [clock.ParseSchedule]; required
	Text     string `yaml:"text"`     // of the input; required
}

// Config of a listener. Its entries are keyed by name, which is an id.
type Config struct {
	Common  `yaml:",inline"`
	Entries map[string]Entry `yaml:"entries"`
}

// entry is an [Entry] that was validated.
type entry struct {
	name     string
	ref      subject.Ref
	schedule *clock.Schedule
	Entry
}

func (c Common) or(d Common) Common {
	return Common{
		Agent: cmp.Or(c.Agent, d.Agent), Session: cmp.Or(c.Session, d.Session), Zone: cmp.Or(c.Zone, d.Zone),
		CatchUp: cmp.Or(c.CatchUp, d.CatchUp), CatchUpMax: cmp.Or(c.CatchUpMax, d.CatchUpMax),
		Late: cmp.Or(c.Late, d.Late), Mode: cmp.Or(c.Mode, d.Mode),
	}
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	_, err := c.build()
	return err
}

func (c Config) build() (map[string]entry, error) {
	defaults := c.or(Common{
		Agent: "main", Zone: "UTC", CatchUp: CatchUpLast, CatchUpMax: defaultCatchUpMax, Late: defaultLate,
	})
	out := make(map[string]entry, len(c.Entries))
	errs := []error{defaults.check()}
	if len(c.Entries) == 0 { // otherwise each entry checks it
		_, err := clock.ParseSchedule("@daily", defaults.Zone)
		errs = append(errs, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Entries)) {
		e := entry{name: name, Entry: c.Entries[name]}
		own := e.or(Common{CatchUp: CatchUpLast, CatchUpMax: defaultCatchUpMax, Late: defaultLate}).check()
		e.Common = e.or(defaults)
		if err := cmp.Or(own, e.check()); err != nil {
			errs = append(errs, fmt.Errorf("entries.%s.%w", name, err))
			continue
		}
		out[name] = e
	}
	return out, errors.Join(errs...)
}

// check reports what is wrong with the settings for catching up, used or not; the
// error begins with the field's name.
func (c Common) check() error {
	switch {
	case c.CatchUp != CatchUpNone && c.CatchUp != CatchUpLast && c.CatchUp != CatchUpAll:
		return fmt.Errorf("catch_up is %q, want none, last or all", c.CatchUp)
	case c.CatchUpMax < 1 || c.CatchUpMax > MaxCatchUp:
		return fmt.Errorf("catch_up_max is %d, want 1 to %d", c.CatchUpMax, MaxCatchUp)
	case c.Late < time.Second:
		return fmt.Errorf("late is %s, want 1s or more", c.Late)
	}
	return nil
}

// check completes the entry; the error begins with the field's name.
func (e *entry) check() (err error) {
	if !subject.Valid(e.name) {
		return fmt.Errorf("name: %q is not a valid id; use 1 to %d characters of A-Z a-z 0-9 _ -", e.name, subject.MaxIDLen)
	}
	if e.Session == "" {
		return errors.New("session is empty; name the session that receives the input")
	}
	if e.ref, err = subject.ParseRef(e.Agent, e.Session); err != nil {
		return fmt.Errorf("agent or session: %w", err)
	}
	if e.schedule, err = clock.ParseSchedule(e.Schedule, e.Zone); err != nil {
		return err
	}
	if err := e.input(time.Time{}).Check(); err != nil {
		return fmt.Errorf("text or mode: %w", err)
	}
	return nil
}

// input returns the input for the occurrence at a time.
func (e *entry) input(at time.Time) contract.Input {
	return contract.Input{
		Agent: e.ref.Agent, Session: e.ref.Session, Text: e.Text, Mode: e.Mode,
		ID: e.name + "/" + at.UTC().Format(time.RFC3339), Source: "cron:" + e.name,
	}
}

// due chooses which of the occurrences after last are to be emitted at now. The
// latest of all of them is newest; zero if there are none.
func (e *entry) due(last, now time.Time) (emit []time.Time, newest time.Time) {
	all := e.schedule.Between(last, now, MaxCatchUp)
	if len(all) == 0 {
		return nil, time.Time{}
	}
	newest = all[len(all)-1]
	intime, _ := slices.BinarySearchFunc(all, now.Add(-e.Late), time.Time.Compare)
	switch {
	case e.CatchUp == CatchUpAll:
		return all[max(0, min(intime, len(all)-e.CatchUpMax)):], newest
	case e.CatchUp == CatchUpLast && intime == len(all):
		return all[len(all)-1:], newest
	}
	return all[intime:], newest
}

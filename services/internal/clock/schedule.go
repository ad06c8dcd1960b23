package clock

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an image with one static binary has no zone files

	"github.com/robfig/cron/v3"
)

var parser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Schedule says when something occurs.
type Schedule struct {
	// passing follows elapsed time; if it is nil, wall is used, on a clock that
	// has no summer time, and its times are converted to the zone.
	passing cron.Schedule
	wall    *cron.SpecSchedule
	zone    *time.Location
}

// ParseSchedule reads a schedule: five fields (minute, hour, day of the month,
// month, day of the week), six with seconds before them, or @hourly, @daily,
// @weekly, @monthly, @yearly, @every DURATION of whole seconds. The zone is a name
// of the IANA data base, empty for UTC.
func ParseSchedule(expr, zone string) (*Schedule, error) {
	if strings.HasPrefix(expr, "TZ=") || strings.HasPrefix(expr, "CRON_TZ=") {
		return nil, errors.New("schedule: set the time zone in zone, not in the schedule")
	}
	loc, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(expr)
	if err != nil {
		return nil, fmt.Errorf("schedule: %q: %w; want for example \"30 8 * * mon-fri\" (minute hour day month weekday)",
			expr, err)
	}
	s := &Schedule{zone: loc}
	switch p := parsed.(type) {
	case cron.ConstantDelaySchedule:
		if text, ok := strings.CutPrefix(expr, "@every "); ok {
			if d, err := time.ParseDuration(strings.TrimSpace(text)); err != nil || d != p.Delay {
				return nil, fmt.Errorf("schedule: %q: want whole seconds, at least one", expr)
			}
		}
		s.passing = p
	case *cron.SpecSchedule:
		if p.Hour == everyHour {
			p.Location = loc
			s.passing = p
		} else {
			p.Location = time.UTC
			s.wall = p
		}
	default:
		return nil, fmt.Errorf("schedule: %q has an unknown type", expr)
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("schedule: %q never occurs", expr)
	}
	return s, nil
}

// Zone returns the time zone with a name of the IANA data base; empty for UTC.
func Zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("zone: %q is not a known time zone; want a name such as Europe/Berlin, or UTC", name)
	}
	return loc, nil
}

// everyHour is how the parser represents the hour field *.
const everyHour = 1<<63 | (1<<24 - 1)

// Next returns the first occurrence after t, in UTC; the zero time if there is none
// within the next years.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.passing != nil {
		next := s.passing.Next(t)
		if next.IsZero() {
			return next
		}
		return next.UTC()
	}
	// A time that is not after t on the wall clock is not after t in time either:
	// converting the wall clock to the zone keeps the order.
	for wall := onWall(t.In(s.zone)); ; {
		wall = s.wall.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if next := InZone(wall, s.zone); next.After(t) {
			return next.UTC()
		}
	}
}

// onWall returns what the wall clock shows at t, as a time in UTC.
func onWall(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// InZone returns when the zone's clock first shows what wall, a time in UTC, shows. If it
// never does, because the clock is put forward over it, that is the moment of the change.
func InZone(wall time.Time, zone *time.Location) time.Time {
	y, m, d := wall.Date()
	t := time.Date(y, m, d, wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	begin, end := t.ZoneBounds()
	switch shown := onWall(t); {
	case shown.Before(wall): // t is before the gap
		return end
	case shown.After(wall): // t is after the gap
		return begin
	}
	if begin.IsZero() {
		return t
	}
	_, offset := begin.Add(-time.Second).Zone() // before the clock was last changed
	if earlier := wall.Add(-time.Duration(offset) * time.Second).In(zone); earlier.Before(begin) {
		return earlier
	}
	return t
}

// Between lists the occurrences of (after, until], at most the latest n of them, in
// order.
func (s *Schedule) Between(after, until time.Time, n int) []time.Time {
	if every, ok := s.passing.(cron.ConstantDelaySchedule); ok {
		// Each occurrence follows from the previous one: skip those that are not wanted.
		if skip := int64(until.Sub(after)/every.Delay) - int64(n); skip > 0 {
			after = after.Add(time.Duration(skip) * every.Delay)
		}
		return s.list(after, until, n)
	}
	// A schedule cannot be read backwards. Look back in growing steps.
	for back := time.Minute; ; back *= 8 {
		from := until.Add(-back)
		if !from.After(after) || back > 10*365*24*time.Hour {
			return s.list(after, until, n)
		}
		if found := s.list(from, until, n); len(found) == n {
			return found
		}
	}
}

func (s *Schedule) list(after, until time.Time, n int) (out []time.Time) {
	for {
		after = s.Next(after)
		if after.IsZero() || after.After(until) {
			return out
		}
		if len(out) == n {
			out = append(out[:0], out[1:]...)
		}
		out = append(out, after)
	}
}

package schedules

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/coreapi"
)

// The bounds of schedules.
const (
	minInterval = time.Minute
	maxInterval = 366 * 24 * time.Hour
	maxIdle     = 30 * 24 * time.Hour
	maxJitter   = 24 * time.Hour
	maxCount    = 1_000_000
	maxAhead    = 10 * 366 * 24 * time.Hour

	shownNext = 3  // occurrences that are shown
	gaps      = 50 // occurrences between which jitter must fit
)

// plan is a [coreapi.When] that was read.
type plan struct {
	when     coreapi.When // as it is stored
	zone     *time.Location
	at       time.Time       // zero unless it occurs once
	times    *clock.Schedule // nil unless it repeats
	interval time.Duration   // with every
	idle     time.Duration   // 0 unless it waits for the session
	hook     bool            // it occurs when it is called
	jitter   time.Duration
	until    time.Time // zero: no end
}

// read reads when a schedule occurs. The error begins with the name of the field.
func read(w coreapi.When) (p plan, err error) {
	if p.zone, err = clock.Zone(w.Zone); err != nil {
		return p, err
	}
	given := 0
	for _, is := range []bool{w.At != "", w.Every != "", w.Cron != "", w.WhenIdle != "", w.Webhook} {
		if is {
			given++
		}
	}
	if given != 1 {
		return p, fmt.Errorf("at, every, cron, when_idle: %d of them are set; set exactly one", given)
	}
	w.Zone = cmp.Or(w.Zone, "UTC")
	if err := errors.Join(p.readKind(&w), p.readLimits(&w), checkWatch(w)); err != nil {
		return p, err
	}
	p.when = w
	return p, nil
}

func (p *plan) readKind(w *coreapi.When) (err error) {
	switch {
	case w.Webhook:
		p.hook = true
	case w.At != "":
		p.at, err = p.time("at", &w.At)
	case w.WhenIdle != "":
		p.idle, err = interval("when_idle", &w.WhenIdle, minInterval, maxIdle)
	case w.Every != "":
		var d time.Duration
		if d, err = interval("every", &w.Every, minInterval, maxInterval); err == nil {
			p.interval = d
			p.times, err = clock.ParseSchedule("@every "+d.String(), w.Zone)
		}
	default:
		// Without a field for seconds, occurrences are a minute apart.
		w.Cron = strings.Join(strings.Fields(w.Cron), " ")
		if strings.HasPrefix(w.Cron, "@every") || !strings.HasPrefix(w.Cron, "@") && len(strings.Fields(w.Cron)) != 5 {
			return fmt.Errorf("cron: %q: want five fields (minute hour day month weekday), such as \"30 8 * * mon-fri\"; "+
				"for a fixed interval, set every", w.Cron)
		}
		if p.times, err = clock.ParseSchedule(w.Cron, w.Zone); err != nil {
			err = fmt.Errorf("cron: %s", strings.TrimPrefix(err.Error(), "schedule: "))
		}
	}
	return err
}

func (p *plan) readLimits(w *coreapi.When) (err error) {
	if w.Jitter != "" {
		if p.jitter, err = interval("jitter", &w.Jitter, time.Second, maxJitter); err != nil {
			return err
		}
	}
	switch {
	case w.Jitter != "" && (w.WhenIdle != "" || w.Webhook):
		return errors.New("jitter: only what occurs at times has it; remove it")
	case w.At != "" && (w.Until != "" || w.Count != 0):
		return errors.New("until, count: a schedule with at occurs once; remove them")
	case w.Count < 0 || w.Count > maxCount:
		return fmt.Errorf("count is %d, want 1 to %d, or none for no limit", w.Count, maxCount)
	case w.Until != "":
		p.until, err = p.time("until", &w.Until)
	}
	return err
}

// durationOfAnyLength is a duration, even one that is too long for its type.
var durationOfAnyLength = regexp.MustCompile(`^(\d+[hms])+$`)

// interval reads a duration of whole seconds, and writes it in its usual form.
func interval(field string, s *string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(*s)
	if err != nil && durationOfAnyLength.MatchString(*s) {
		return 0, fmt.Errorf("%s is %s, want %s to %s", field, *s, least, most)
	}
	if err != nil || d%time.Second != 0 {
		return 0, fmt.Errorf("%s is %q, want a duration of whole seconds, such as 90m or 24h", field, *s)
	}
	if d < least || d > most {
		return 0, fmt.Errorf("%s is %s, want %s to %s", field, d, least, most)
	}
	*s = d.String()
	return d, nil
}

// time reads a time: with an offset, or on the zone's clock. It writes it in UTC.
func (p *plan) time(field string, s *string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, *s)
	if err != nil {
		wall := time.Time{}
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
			if wall, err = time.Parse(layout, *s); err == nil {
				break
			}
		}
		if err != nil {
			return t, fmt.Errorf("%s is %q, want a time such as 2026-11-27T09:00 (on the clock of zone) or 2026-11-27T09:00:00Z", field, *s)
		}
		t = clock.InZone(wall, p.zone)
	}
	t = t.UTC().Truncate(time.Second)
	*s = t.Format(time.RFC3339)
	return t, nil
}

// check reports whether a schedule that is created now would occur, and not too often. The error begins
// with the name of the field.
func (p *plan) check(now time.Time) error {
	switch {
	case !p.at.IsZero() && !p.at.After(now):
		return fmt.Errorf("at is %s, which is in the past; it is %s now", p.show(p.at), p.show(now))
	case p.at.Sub(now) > maxAhead:
		return fmt.Errorf("at is %s, want a time within the next 10 years", p.show(p.at))
	case !p.until.IsZero() && !p.until.After(now):
		return fmt.Errorf("until is %s, which is in the past; it is %s now", p.show(p.until), p.show(now))
	case p.idle > 0 || p.hook || !p.at.IsZero():
		return nil
	}
	first := p.next(now)
	if first.IsZero() && !p.until.IsZero() {
		return fmt.Errorf("until is %s: nothing occurs before; choose a later time", p.show(p.until))
	}
	if first.IsZero() {
		return errors.New("cron: it never occurs within the next years")
	}
	if least := p.smallestGap(first); p.jitter > least/2 {
		return fmt.Errorf("jitter is %s, want at most %s: half of the time between two occurrences", p.jitter, least/2)
	}
	return nil
}

// smallestGap returns the shortest time between two of the next occurrences.
func (p *plan) smallestGap(first time.Time) time.Duration {
	least := maxInterval
	for range gaps {
		second := p.times.Next(first)
		if second.IsZero() {
			break
		}
		least, first = min(least, second.Sub(first)), second
		if p.interval > 0 {
			break
		}
	}
	return least
}

// next returns the first occurrence after a time, without jitter; zero if there is none.
func (p *plan) next(after time.Time) (t time.Time) {
	switch {
	case p.times != nil:
		t = p.times.Next(after)
	case p.at.After(after):
		t = p.at
	}
	if !p.until.IsZero() && t.After(p.until) {
		return time.Time{}
	}
	return t
}

// due returns the latest occurrence of (last, now] that is due with its jitter; zero if there is none.
func (p *plan) due(key string, last, now time.Time) time.Time {
	if p.times == nil {
		if t := p.next(last); !t.IsZero() && !p.late(key, t).After(now) {
			return t
		}
		return time.Time{}
	}
	until := now
	if !p.until.IsZero() && p.until.Before(now) {
		until = p.until
	}
	// Jitter is at most half of a gap, so only the last can be yet to come.
	all := p.times.Between(last, until, 2)
	for len(all) > 0 && p.late(key, all[len(all)-1]).After(now) {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return time.Time{}
	}
	return all[len(all)-1]
}

// late returns when an occurrence takes place: with a jitter that is always the same for it.
func (p *plan) late(key string, t time.Time) time.Time {
	if p.jitter == 0 {
		return t
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", key, t.Unix())
	return t.Add(time.Duration(h.Sum64() % uint64(p.jitter/time.Second+1) * uint64(time.Second)))
}

// upcoming returns the occurrences that follow the last one and are yet to come, in the plan's zone, at
// most left of them if that is not 0.
func (p *plan) upcoming(last, now time.Time, left int) (out []time.Time) {
	after := last
	switch passed := now.Sub(last); {
	case passed <= 0:
	case p.interval > 0: // the beat is that of the last occurrence
		after = last.Add(passed.Truncate(p.interval))
	default:
		after = now
	}
	for len(out) < shownNext && (left == 0 || len(out) < left) {
		if after = p.next(after); after.IsZero() {
			break
		}
		out = append(out, after.In(p.zone))
	}
	return out
}

func (p *plan) show(t time.Time) string { return t.In(p.zone).Format("2006-01-02T15:04:05 MST") }

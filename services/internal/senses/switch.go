package senses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// switchPrefix begins the keys of switches.
const switchPrefix = "switch."

// MaxByBytes is the maximum length of [Switch].By.
const MaxByBytes = 128

// Switch says whether a listener may see or hear people. It survives restarts. A listener that
// nobody has switched has none: its configuration says how it starts.
type Switch struct {
	On bool      `json:"on"`
	By string    `json:"by"` // the person who switched it, or the program that did it for them
	At time.Time `json:"at"`
	// Revision is that of the entry; a later switch has a higher one.
	Revision uint64 `json:"-"`
}

// String says it to people.
func (s Switch) String() string {
	return "switched " + map[bool]string{true: "on", false: "off"}[s.On] + " by " + s.By +
		" at " + s.At.UTC().Format("2006-01-02 15:04:05 MST")
}

// Turn switches a listener on or off, in every process that runs it. It returns the revision once that
// is stored; each process follows when it can, and [Listed.Confirmed] says when it has.
func Turn(ctx context.Context, j *journal.Journal, listener subject.Writer, on bool, by string) (uint64, error) {
	if _, err := subject.Parse[subject.Writer](string(listener)); err != nil {
		return 0, err
	}
	if by == "" || len(by) > MaxByBytes || strings.ContainsFunc(by, unicode.IsControl) {
		return 0, bus.Errorf(bus.CodeInvalidArgument,
			"by is %.140q; name who switches, in 1 to %d bytes without control characters", by, MaxByBytes)
	}
	body, err := json.Marshal(Switch{On: on, By: by, At: time.Now().UTC()})
	if err != nil {
		return 0, err
	}
	key := switchPrefix + string(listener)
	revision, err := change(ctx, j, key, func(k *journal.Bucket, f journal.Fence) (uint64, error) {
		return k.Put(ctx, key, body, f)
	})
	if err != nil {
		return 0, fmt.Errorf("switching listener %s: %w", listener, err)
	}
	return revision, nil
}

// Switches returns the switches of the listeners that were switched, by listener.
func Switches(ctx context.Context, j *journal.Journal) (map[subject.Writer]Switch, error) {
	out := map[subject.Writer]Switch{}
	for e, err := range j.Bucket(journal.BucketListeners).Matching(ctx, switchPrefix+"*") {
		if err != nil {
			return nil, err
		}
		if s, ok := parseSwitch(e); ok {
			out[subject.Writer(strings.TrimPrefix(e.Key, switchPrefix))] = s
		}
	}
	return out, nil
}

// Position is the switch of a listener as one process has learned of it.
type Position struct {
	Switch
	// Switched is false if nobody has switched it; the revision is then 0.
	Switched bool
	// Missed: there may have been other positions since the last one that was learned.
	Missed bool
}

// FollowSwitch calls f with the position of a listener's switch, first as it is and then whenever it
// changes, until the watch is stopped. It is called again with the same position after an interruption.
// It is not called before the bus has answered: until then, it is unknown whether somebody has switched
// the listener off.
func FollowSwitch(j *journal.Journal, listener subject.Writer, f func(Position)) *journal.BucketWatch {
	key := switchPrefix + string(listener)
	return j.Bucket(journal.BucketListeners).Watch(func(c journal.Change) {
		p, found := Position{Missed: c.Reset}, c.Reset
		for _, e := range c.Entries {
			if e.Key != key {
				continue
			}
			found = true
			p.Switch, p.Switched = parseSwitch(e)
		}
		if found {
			f(p)
		}
	})
}

// SwitchRevision reads the revision of a listener's switch, 0 without one. It is that of the last switch
// which was acknowledged before the call.
func SwitchRevision(ctx context.Context, j *journal.Journal, listener subject.Writer) (uint64, error) {
	e, err := j.Bucket(journal.BucketListeners).Get(ctx, switchPrefix+string(listener))
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	return e.Revision, err
}

// parseSwitch reads an entry. One that is damaged counts as off: a listener must not see or hear
// because nobody can read what was decided.
func parseSwitch(e journal.Entry) (s Switch, ok bool) {
	if e.Deleted {
		return s, false
	}
	if err := json.Unmarshal(e.Value, &s); err != nil {
		s = Switch{By: "a damaged entry of the bucket " + journal.BucketListeners, At: e.Time}
	}
	s.Revision = e.Revision
	if e.Time.Before(s.At) { // the clock of the person's machine is ahead
		s.At = e.Time.UTC()
	}
	return s, true
}

// change writes an entry, even if another process has written it last, and returns its revision.
func change(
	ctx context.Context, j *journal.Journal, key string, write func(*journal.Bucket, journal.Fence) (uint64, error),
) (uint64, error) {
	k := j.Bucket(journal.BucketListeners)
	for {
		var last uint64
		for e, err := range k.Matching(ctx, key) {
			if err != nil {
				return 0, err
			}
			last = e.Revision
		}
		revision, err := write(k, journal.Fence{Revision: last})
		if !errors.Is(err, bus.ErrFenceLost) || ctx.Err() != nil {
			return revision, err
		}
	}
}

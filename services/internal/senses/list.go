package senses

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// StateUnknown is the state of a listener whose process does not report any more: it may be dead,
// stopped, or cut off from the bus. StateDown is that of one whose process is known to be dead; the
// others are those of the listener contract.
const (
	StateUnknown = "unknown"
	StateDown    = "down"
)

// Light is what is known about whether a camera or microphone records.
type Light string

// The lights.
const (
	LightRecording   Light = "recording"     // something comes from its source
	LightNot         Light = "not_recording" // nothing comes, or it is switched off
	LightUnconfirmed Light = "unconfirmed"   // it is switched off, and its process has not confirmed that it follows
	LightUnknown     Light = "unknown"       // its process does not report any more, and could record
)

// Listed is what is known of a listener in one process.
type Listed struct {
	Report
	Heard time.Time `json:"heard"` // when the report was stored, by the clock of the bus
	// Switch is what people have decided last; nil if nobody has switched it.
	Switch *Switch `json:"switch,omitempty"`
	// Light and Says, for people, are absent for a listener without Media.
	Light Light  `json:"light,omitempty"`
	Says  string `json:"says,omitempty"`
}

// Wanted reports whether a camera or microphone is switched on: by people, or else by its
// configuration.
func (l Listed) Wanted() bool {
	if l.Switch != nil {
		return l.Switch.On
	}
	return l.On
}

// Confirmed reports whether the process follows the change of the switch with a revision, or a later
// one. A dead process records nothing.
func (l Listed) Confirmed(revision uint64) bool { return l.Follows >= revision || l.Process.Dead() }

// Off reports whether the process has confirmed that it is off since that change.
func (l Listed) Off(revision uint64) bool {
	return l.Process.Dead() || l.Follows >= revision && !l.On && !l.Recording
}

// judge completes what is listed by its age.
func (l *Listed) judge(age time.Duration) {
	was, silent := l.State, age > 2*l.Interval()+reportLate
	dead := l.Process.Dead()
	switch {
	case dead:
		l.State, l.Reason, l.Since = StateDown, "its process has ended without stopping it", l.Heard
	case silent:
		l.State, l.Since = StateUnknown, l.Heard
		l.Reason = fmt.Sprintf("its process was last heard %s ago; it was %s then", spell(age), was)
	}
	if l.Media == "" {
		return
	}
	switch {
	case dead: // the child that reads the source has died with it
		l.Light, l.Says = LightNot, "not recording"
	case l.Switch != nil && !l.Switch.On && !l.Confirmed(l.Switch.Revision):
		l.Light, l.Says = LightUnconfirmed, "switched off, not confirmed by "+string(l.Instance)
		if silent {
			l.Says += ", last heard " + spell(age) + " ago"
		}
	case silent && l.Wanted(): // one that has confirmed that it is off stays off, even if it is stopped
		l.Light, l.Says = LightUnknown, "unknown, last heard "+spell(age)+" ago"
		if l.Recording {
			l.Says += ", recording then"
		}
	case l.Recording:
		l.Light, l.Says = LightRecording, "recording"
	default:
		l.Light, l.Says = LightNot, "not recording"
	}
}

func spell(age time.Duration) string {
	switch {
	case age < 2*time.Minute:
		return fmt.Sprintf("%d s", int(age.Seconds()))
	case age < 2*time.Hour:
		return fmt.Sprintf("%d min", int(age.Minutes()))
	}
	return fmt.Sprintf("%d h", int(age.Hours()))
}

// List returns what is known of the listeners of all processes, by name and instance. A process that
// is known to be dead is listed only if no other one has the listener.
func List(ctx context.Context, j *journal.Journal) (out []Listed, err error) {
	k := j.Bucket(journal.BucketListeners)
	now, err := k.Now(ctx) // a clock of a host could make an old report fresh
	if err != nil {
		return nil, err
	}
	switches, err := Switches(ctx, j)
	if err != nil {
		return nil, err
	}
	has := map[subject.Writer]bool{} // a process that may live
	for e, err := range k.Matching(ctx, prefix+"*.*") {
		if err != nil {
			return nil, err
		}
		var r Report
		age := now.Sub(e.Time)
		if e.Deleted || json.Unmarshal(e.Value, &r) != nil || r.key() != e.Key || age > Forgotten {
			continue
		}
		l := Listed{Report: r, Heard: e.Time}
		if s, ok := switches[r.Listener]; ok && r.Media != "" {
			l.Switch = &s
		}
		l.judge(age)
		has[r.Listener] = has[r.Listener] || !r.Process.Dead()
		out = append(out, l)
	}
	out = slices.DeleteFunc(out, func(l Listed) bool { return has[l.Listener] && l.Process.Dead() })
	slices.SortFunc(out, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Listener, b.Listener), cmp.Compare(a.Instance, b.Instance))
	})
	return out, nil
}

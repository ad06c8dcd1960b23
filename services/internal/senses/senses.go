// Package senses is how listeners report their state to people, and how people switch those that
// see and hear: each listener of each process has one entry in the bucket listeners (key
// health.<listener>.<instance>), which skandha status and the UI bridge read, and a [Switch] (key
// switch.<listener>) once somebody has switched it. A camera of the page has a [Watcher] (key
// page.<listener>).
//
// An entry is written when the state changes and every [Report.Interval]. A process that ends removes
// its own; one that was killed leaves them. What has not been heard of for two intervals is unknown: it
// is not said to record, nor not to record. A report is forgotten after [Forgotten], and at once if the
// process is known to be dead and another one has the listener.
//
// A switch is followed when [Report.Follows] is its revision or a later one. A listener that has left
// its source only then says that it follows.
package senses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// The times of reports.
const (
	every        = 15 * time.Second
	everySensing = 3 * time.Second // people rely on the light
	// reportLate is how late a report may be: a process looks once a second whether one is due.
	reportLate = time.Second
	// Forgotten is how long a report of a process that was killed is shown.
	Forgotten = 24 * time.Hour
)

const prefix = "health."

// The kinds of [Report].Media.
const (
	MediaCamera     = "camera"
	MediaMicrophone = "microphone"
)

// Report is the state of a listener in one process.
type Report struct {
	Listener subject.Writer   `json:"listener"`
	Kind     string           `json:"kind"`             // e.g. mqtt
	State    string           `json:"state"`            // ok, degraded or down; see [StateUnknown]
	Reason   string           `json:"reason,omitempty"` // why it is not ok
	Since    time.Time        `json:"since,omitzero"`   // when the state began
	At       time.Time        `json:"at"`               // of the report
	Instance subject.Instance `json:"instance"`         // the process
	Process  Process          `json:"process,omitzero"`
	// Media is [MediaCamera] or [MediaMicrophone] for a listener that sees or hears people; they can
	// switch it. The others are absent without it.
	Media string        `json:"media,omitempty"`
	Agent subject.Agent `json:"agent,omitempty"` // who sees or hears
	// On: it is switched on, as far as its process knows. It then reads its source, or tries to.
	On bool `json:"on,omitempty"`
	// Recording: something comes from its source now.
	Recording bool `json:"recording,omitempty"`
	// Follows is the revision of the switch that the process follows; 0 while there is none, or it has
	// not read it yet.
	Follows uint64 `json:"follows,omitempty"`
}

// Interval is how often the report is stored while nothing changes.
func (r Report) Interval() time.Duration {
	if r.Media != "" {
		return everySensing
	}
	return every
}

func (r Report) key() string { return prefix + string(r.Listener) + "." + string(r.Instance) }

// Same reports whether two reports differ only in their time.
func (r Report) Same(o Report) bool {
	r.At, o.At = time.Time{}, time.Time{}
	return r == o
}

// Put stores a report, by default as one of this process.
func Put(ctx context.Context, j *journal.Journal, r Report) error {
	r.Instance = cmp.Or(r.Instance, j.Instance())
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = change(ctx, j, r.key(), func(k *journal.Bucket, f journal.Fence) (uint64, error) {
		return k.Put(ctx, r.key(), body, f)
	})
	return err
}

// Remove removes the report of a listener in a process, if there is one.
func Remove(ctx context.Context, j *journal.Journal, listener subject.Writer, process subject.Instance) error {
	k := j.Bucket(journal.BucketListeners)
	e, err := k.Get(ctx, Report{Listener: listener, Instance: process}.key())
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = k.Delete(ctx, e.Key, journal.Fence{Revision: e.Revision})
	}
	return err
}

// Sweep removes the reports of the listeners whose processes are known to be dead, and of all that are
// [Forgotten].
func Sweep(ctx context.Context, j *journal.Journal, listeners []subject.Writer) error {
	k := j.Bucket(journal.BucketListeners)
	now, err := k.Now(ctx)
	if err != nil {
		return err
	}
	for e, err := range k.Matching(ctx, prefix+">") {
		if err != nil {
			return err
		}
		var r Report
		damaged := json.Unmarshal(e.Value, &r) != nil
		old := now.Sub(e.Time) > Forgotten
		if e.Deleted || !old && (damaged || !slices.Contains(listeners, r.Listener) || !r.Process.Dead()) {
			continue
		}
		_, err := k.Delete(ctx, e.Key, journal.Fence{Revision: e.Revision})
		if err != nil && !errors.Is(err, bus.ErrFenceLost) { // it reports again, or somebody else has removed it
			return err
		}
	}
	return nil
}

// Known reports whether a listener has reported its state and not been stopped since. Its process may
// have been killed, up to [Forgotten] ago.
func Known(ctx context.Context, j *journal.Journal, listener subject.Writer) (bool, error) {
	for e, err := range j.Bucket(journal.BucketListeners).Matching(ctx, prefix+string(listener)+".*") {
		if err != nil {
			return false, err
		}
		if !e.Deleted && time.Since(e.Time) <= Forgotten {
			return true, nil
		}
	}
	return false, nil
}

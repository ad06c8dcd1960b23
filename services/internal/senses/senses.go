// Package senses is how listeners report their state to people, and how people switch those that
// see and hear: each listener has one entry in the bucket listeners (key health.<listener>), which
// skandha status and the UI bridge read, and a [Switch] (key switch.<listener>) once somebody has
// switched it. A camera of the page has a [Watcher] (key page.<listener>).
//
// An entry is written when the state changes and every [Every]. A process that ends removes
// those of its listeners; one that was killed leaves them, and after [Stale] they count as
// down.
package senses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// The times of reports.
const (
	Every = 15 * time.Second
	Stale = 3 * Every
	// Forgotten is how long a report of a process that was killed is shown.
	Forgotten = 24 * time.Hour
)

const prefix = "health."

// The kinds of [Report].Media.
const (
	MediaCamera     = "camera"
	MediaMicrophone = "microphone"
)

// StateDown is the state of a listener whose process does not report any more; the others are
// those of the listener contract.
const StateDown = "down"

// Report is the state of a listener.
type Report struct {
	Listener subject.Writer   `json:"listener"`
	Kind     string           `json:"kind"`             // e.g. mqtt
	State    string           `json:"state"`            // ok, degraded or down
	Reason   string           `json:"reason,omitempty"` // why it is not ok
	Since    time.Time        `json:"since,omitzero"`   // when the state began
	At       time.Time        `json:"at"`               // of the report
	Instance subject.Instance `json:"instance"`         // the process
	// Media is [MediaCamera] or [MediaMicrophone] for a listener that sees or hears people, and On
	// whether it does now; people can switch it.
	Media string `json:"media,omitempty"`
	On    bool   `json:"on,omitempty"`
	// Agent is who sees or hears, for a listener with Media.
	Agent subject.Agent `json:"agent,omitempty"`
}

// Same reports whether two reports differ only in their time.
func (r Report) Same(o Report) bool {
	r.At, o.At = time.Time{}, time.Time{}
	return r == o
}

// Put stores a report.
func Put(ctx context.Context, j *journal.Journal, r Report) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	key := prefix + string(r.Listener)
	return change(ctx, j, key, func(k *journal.Bucket, f journal.Fence) error {
		_, err := k.Put(ctx, key, body, f)
		return err
	})
}

// Remove removes the report of a listener, unless another process has written it.
func Remove(ctx context.Context, j *journal.Journal, listener subject.Writer) error {
	k := j.Bucket(journal.BucketListeners)
	e, err := k.Get(ctx, prefix+string(listener))
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	var r Report
	if err == nil && json.Unmarshal(e.Value, &r) == nil && r.Instance != j.Instance() {
		return nil
	}
	if err == nil {
		_, err = k.Delete(ctx, e.Key, journal.Fence{Revision: e.Revision})
	}
	return err
}

// Known reports whether a listener has reported its state and not been stopped since. Its process may
// have been killed, up to [Forgotten] ago.
func Known(ctx context.Context, j *journal.Journal, listener subject.Writer) (bool, error) {
	e, err := j.Bucket(journal.BucketListeners).Get(ctx, prefix+string(listener))
	if errors.Is(err, bus.ErrNotFound) {
		return false, nil
	}
	return err == nil && time.Since(e.Time) <= Forgotten, err
}

// List returns the reports, by name. Those of processes that do not report any more are down.
func List(ctx context.Context, j *journal.Journal) (out []Report, err error) {
	now := time.Now()
	for e, err := range j.Bucket(journal.BucketListeners).Matching(ctx, prefix+"*") {
		if err != nil {
			return nil, err
		}
		var r Report
		if e.Deleted || json.Unmarshal(e.Value, &r) != nil || string(r.Listener) != strings.TrimPrefix(e.Key, prefix) {
			continue
		}
		// The server's clock says when it was written; that of the listener's host may differ.
		switch age := now.Sub(e.Time); {
		case age > Forgotten:
			continue
		case age > Stale:
			r.State, r.Reason, r.Since = StateDown, "its process does not report any more", e.Time
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Report) int { return cmp.Compare(a.Listener, b.Listener) })
	return out, nil
}

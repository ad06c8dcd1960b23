// Package effect records, for each call of a tool with a probe, how far it got: that its effect
// is about to begin, and what its result was. So the outcome of a call can be found out after the
// process that ran it has died.
//
// Produced and consumed: the bucket effects, by key and id of the call (its age limit is longer than the
// longest turn).
//
// # Guarantee
//
// [Mark.Begin] succeeds for one attempt at a call at most, and never after [Marks.Close] has
// closed the call. A call that was closed before it began therefore never takes effect, not even
// if its runner was only frozen. Everything is stored before the functions return.
//
// # Failure
//
// When the bus cannot store, Begin returns an error, and the tool must not act.
package effect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
)

// Key returns the name of the record of a call: by its key, because ids are unique only in one log,
// and by its id, because what is delivered again has the same key.
func Key(key, call string) string { return key + "." + call }

// State is how far a call got.
type State string

// The states.
const (
	Begun  State = "begun"  // its effect was about to begin; it may have happened
	Ended  State = "ended"  // Result is its result
	Closed State = "closed" // its effect has never begun, and never will
)

// Record is what is stored about a call.
type Record struct {
	State   State        `json:"state"`
	Attempt string       `json:"attempt,omitempty"` // that began it
	At      time.Time    `json:"at"`                // of the state
	Result  *tool.Result `json:"result,omitempty"`  // with Ended
}

// ErrClosed means that the effect must not begin: another attempt has begun it, or the call was
// closed because its runner was taken for dead.
var ErrClosed = errors.New("the call has already begun elsewhere, or was given up")

// maxResult is the largest result that is kept, encoded, in bytes. Of a larger one only the
// success is kept.
const maxResult = 64 << 10

// Marks are the records of all calls.
type Marks struct {
	bucket *journal.Bucket
	now    func() time.Time
}

// New returns the records on a bus.
func New(j *journal.Journal) *Marks { return &Marks{j.Bucket(journal.BucketEffects), time.Now} }

// Mark is the record of one call, as one attempt at it writes it.
type Mark struct {
	marks        *Marks
	key, attempt string
	revision     uint64 // once it has begun
}

// Mark returns the record of a call with the key.
func (m *Marks) Mark(key, attempt string) *Mark { return &Mark{marks: m, key: key, attempt: attempt} }

// Begin stores that the effect of the call is about to begin. The tool calls it right before the
// first act that cannot be taken back, and must not act after an error. Calling it again in the
// same attempt does nothing.
func (m *Mark) Begin(ctx context.Context) error {
	if m.revision > 0 {
		return nil
	}
	rev, err := m.marks.put(ctx, m.key, Record{State: Begun, Attempt: m.attempt, At: m.marks.now().UTC()}, 0)
	switch {
	case err == nil:
		m.revision = rev
		return nil
	case errors.Is(err, bus.ErrFenceLost):
		return ErrClosed
	case errors.Is(err, bus.ErrAmbiguous):
		// It may be stored. A record of this attempt lets it begin; no other one does.
		if r, rev, err := m.marks.read(ctx, m.key); err == nil && r.State == Begun && r.Attempt == m.attempt {
			m.revision = rev
			return nil
		}
	}
	return fmt.Errorf("recording that the call begins: %w", err)
}

// Began reports whether Begin has succeeded.
func (m *Mark) Began() bool { return m.revision > 0 }

// End stores the result of a call that has begun. It does nothing for one that has not.
func (m *Mark) End(ctx context.Context, r tool.Result) error {
	if m.revision == 0 {
		return nil
	}
	if b, err := json.Marshal(r); err != nil || len(b) > maxResult {
		r.Data, r.Files = nil, nil
		r.Metadata = map[string]any{"truncated": true}
	}
	_, err := m.marks.put(ctx, m.key, Record{State: Ended, Attempt: m.attempt, At: m.marks.now().UTC(), Result: &r}, m.revision)
	if err != nil {
		return fmt.Errorf("recording the result of the call: %w", err)
	}
	return nil
}

// Close returns how far the call with the key got. If it has not begun, Close closes it, so that
// it never will.
func (m *Marks) Close(ctx context.Context, key string) (Record, error) {
	for {
		r, _, err := m.read(ctx, key)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, bus.ErrNotFound) {
			return Record{}, fmt.Errorf("reading how far the call got: %w", err)
		}
		r = Record{State: Closed, At: m.now().UTC()}
		_, err = m.put(ctx, key, r, 0)
		if err == nil {
			return r, nil
		}
		// It has begun meanwhile, or the answer was lost: look again.
		if !errors.Is(err, bus.ErrFenceLost) && !errors.Is(err, bus.ErrAmbiguous) || ctx.Err() != nil {
			return Record{}, fmt.Errorf("closing the call: %w", err)
		}
	}
}

func (m *Marks) read(ctx context.Context, key string) (r Record, revision uint64, err error) {
	e, err := m.bucket.Get(ctx, key)
	if err == nil {
		err = json.Unmarshal(e.Value, &r)
	}
	return r, e.Revision, err
}

func (m *Marks) put(ctx context.Context, key string, r Record, after uint64) (uint64, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	return m.bucket.Put(ctx, key, value, journal.Fence{Revision: after})
}

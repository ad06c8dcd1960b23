package senses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// pagePrefix begins the keys of [Watcher].
const pagePrefix = "page."

// Watcher is a camera listener that watches the camera which a person shares with a session on the page.
// Its masks and its switch hold for every picture of that camera, also while its process does not run,
// for as long as [Forgotten].
type Watcher struct {
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Masks    []Mask          `json:"masks,omitempty"`
	StartOff bool            `json:"start_off,omitempty"` // it is off until somebody switches it on
}

// PutWatcher stores what holds for the page's camera because of a listener; nil: nothing does any more.
func PutWatcher(ctx context.Context, j *journal.Journal, listener subject.Writer, w *Watcher) error {
	key := pagePrefix + string(listener)
	if w == nil {
		k := j.Bucket(journal.BucketListeners)
		e, err := k.Get(ctx, key)
		if err == nil {
			_, err = k.Delete(ctx, key, journal.Fence{Revision: e.Revision})
		}
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		return err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = change(ctx, j, key, func(k *journal.Bucket, f journal.Fence) (uint64, error) { return k.Put(ctx, key, body, f) })
	return err
}

// Sharing is what holds for the camera that a person shares with a session on the page.
type Sharing struct {
	Off   string // why nobody may see its pictures; empty: they may
	Masks []Mask // of all listeners
}

// SharingOf reads what holds for the page's camera of a session now. After an error nobody may see its
// pictures.
func SharingOf(ctx context.Context, j *journal.Journal, ref subject.Ref) (out Sharing, err error) {
	k, now := j.Bucket(journal.BucketListeners), time.Now()
	for e, err := range k.Matching(ctx, pagePrefix+"*") {
		if err != nil {
			return out, err
		}
		if e.Deleted || now.Sub(e.Time) > Forgotten {
			continue
		}
		var w Watcher
		if err := json.Unmarshal(e.Value, &w); err != nil {
			return out, fmt.Errorf("entry %s of bucket %s is damaged; start its listener again: %w", e.Key, journal.BucketListeners, err)
		}
		if w.Agent != ref.Agent || w.Session != ref.Session {
			continue
		}
		listener := subject.Writer(strings.TrimPrefix(e.Key, pagePrefix))
		why, err := offBy(ctx, k, listener, w)
		if err != nil {
			return out, err
		}
		if out.Masks = append(out.Masks, w.Masks...); why != "" && out.Off == "" {
			out.Off = fmt.Sprintf("camera %s is off: %s", listener, why)
		}
	}
	return out, nil
}

// offBy returns why a listener is off; empty if it is on.
func offBy(ctx context.Context, k *journal.Bucket, listener subject.Writer, w Watcher) (string, error) {
	e, err := k.Get(ctx, switchPrefix+string(listener))
	switch {
	case errors.Is(err, bus.ErrNotFound) && w.StartOff:
		return StartsOff, nil
	case errors.Is(err, bus.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	if s, ok := parseSwitch(e); ok && !s.On {
		return s.String(), nil
	}
	return "", nil
}

// StartsOff is why a listener is off that nobody has switched.
const StartsOff = "off until somebody switches it on (start: off)"

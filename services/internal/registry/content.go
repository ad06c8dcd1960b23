package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// Record is what stands under manifest.<plugin>. Every write of one is fenced
// against the writes of all others, so that admission sees them all.
type Record struct {
	Manifest   plugin.Manifest `json:"manifest"` // Instance is empty
	Hash       string          `json:"hash"`
	Registered time.Time       `json:"registered"`
	Suspended  *SuspendRecord  `json:"suspended,omitempty"`
	Draining   []Drain         `json:"draining,omitempty"`
	// Released is when a core found that no replica was left. A manifest that is
	// released and has no lease owns no name; only one that is not released may get
	// a first lease.
	Released time.Time `json:"released,omitzero"`
	// Lost says that the last replica ended without saying so: its lease ran out.
	Lost bool `json:"lost,omitempty"`
}

// SuspendRecord is a suspension and the replicas that were there.
type SuspendRecord struct {
	Suspension
	Instances []subject.Instance `json:"instances,omitempty"` // by their coming back it is not lifted
}

// Drain says that a replica gets no new calls.
type Drain struct {
	Instance subject.Instance `json:"instance"`
	By       By               `json:"by,omitempty"` // ByOperator; empty: itself
	Reason   string           `json:"reason,omitempty"`
	At       time.Time        `json:"at"`
}

// LeaseRecord is what stands under lease.<plugin>.<instance>. The first write is
// fenced against changes of the plugin's manifest, each renewal against all other
// writes of the lease.
type LeaseRecord struct {
	Instance subject.Instance `json:"instance"`
	Hash     string           `json:"hash"`
	Since    time.Time        `json:"since"`
}

// StoredRecord is a record as the bucket has it.
type StoredRecord struct {
	Record
	Revision uint64
	// Alone is when this process saw that the plugin has no lease, or was written
	// without one; zero while it has one. It is of the monotonic clock.
	Alone time.Time
}

// StoredLease is a lease as the bucket has it.
type StoredLease struct {
	LeaseRecord
	Plugin   subject.Plugin
	Revision uint64
	Seen     time.Time // when this process saw it written; of the monotonic clock
}

// Marker is what is left of a deleted key.
type Marker struct {
	Key      string
	Revision uint64
	Seen     time.Time
}

// Content is the bucket, key by key. The values must not be changed.
type Content struct {
	Revision         uint64 // of the last change
	ManifestRevision uint64 // of the last change of any manifest: the fence
	Records          map[subject.Plugin]*StoredRecord
	Leases           map[subject.Plugin]map[subject.Instance]*StoredLease
	Markers          map[string]Marker // what is left of deleted keys, by key; old ones are dropped

	swept time.Time // when old markers were looked for
}

// NewContent is an empty bucket.
func NewContent() *Content {
	return &Content{
		Records: map[subject.Plugin]*StoredRecord{}, Leases: map[subject.Plugin]map[subject.Instance]*StoredLease{},
		Markers: map[string]Marker{},
	}
}

// Clone copies it without its markers, so that the original may go on.
func (c *Content) Clone() *Content {
	n := *c
	n.Records, n.Markers = maps.Clone(c.Records), nil
	n.Leases = make(map[subject.Plugin]map[subject.Instance]*StoredLease, len(c.Leases))
	for p, l := range c.Leases {
		n.Leases[p] = maps.Clone(l)
	}
	return &n
}

// Live lists the leases that count for the plugin, those with the hash of its
// manifest, by instance.
func (c *Content) Live(p subject.Plugin) []*StoredLease {
	r := c.Records[p]
	if r == nil {
		return nil
	}
	var out []*StoredLease
	for _, l := range c.Leases[p] {
		if l.Hash == r.Hash {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *StoredLease) int {
		if a.Instance < b.Instance {
			return -1
		}
		return 1
	})
	return out
}

// Owns reports whether the plugin's names are its own: it has a lease, or is
// about to get one.
func (c *Content) Owns(p subject.Plugin) bool {
	r := c.Records[p]
	return r != nil && (r.Released.IsZero() || len(c.Live(p)) > 0)
}

// Drain returns why a replica drains, or nil.
func (r *Record) Drain(i subject.Instance) *Drain {
	if k := slices.IndexFunc(r.Draining, func(d Drain) bool { return d.Instance == i }); k >= 0 {
		return &r.Draining[k]
	}
	return nil
}

// Apply takes a change in, seen now. What cannot be read is as if it were not
// there; the error says so. The flag renewed is set when nothing but the times of
// leases has changed.
func (c *Content) Apply(e bus.Entry, now time.Time) (renewed bool, err error) {
	c.Revision = max(c.Revision, e.Revision)
	p, i, err := subject.ParsePluginKey(e.Key)
	if err != nil {
		return true, err
	}
	delete(c.Markers, e.Key)
	if e.Deleted {
		c.Markers[e.Key] = Marker{e.Key, e.Revision, now}
	}
	if i == "" {
		c.ManifestRevision = max(c.ManifestRevision, e.Revision)
		err = c.applyRecord(p, e)
	} else {
		renewed, err = c.applyLease(p, i, e, now)
	}
	if r := c.Records[p]; r != nil {
		switch alone := len(c.Live(p)) == 0; {
		case !alone && !r.Alone.IsZero(), alone && (r.Alone.IsZero() || i == ""):
			n := *r
			if n.Alone = (time.Time{}); alone {
				n.Alone = now
			}
			c.Records[p] = &n
		}
	}
	if err != nil {
		return renewed, fmt.Errorf("reading %s of the registry at revision %d: %w", e.Key, e.Revision, err)
	}
	return renewed, nil
}

func (c *Content) applyRecord(p subject.Plugin, e bus.Entry) error {
	delete(c.Records, p)
	if e.Deleted {
		return nil
	}
	r := &StoredRecord{Revision: e.Revision}
	if err := json.Unmarshal(e.Value, &r.Record); err != nil {
		return err
	}
	if r.Manifest.Name != p || r.Hash == "" {
		return fmt.Errorf("the manifest is that of %q", r.Manifest.Name)
	}
	c.Records[p] = r
	return nil
}

func (c *Content) applyLease(p subject.Plugin, i subject.Instance, e bus.Entry, now time.Time) (renewed bool, err error) {
	old := c.Leases[p][i]
	if e.Deleted {
		delete(c.Leases[p], i)
		if len(c.Leases[p]) == 0 {
			delete(c.Leases, p)
		}
		return old == nil, nil
	}
	l := &StoredLease{Plugin: p, Revision: e.Revision, Seen: now}
	if err := json.Unmarshal(e.Value, &l.LeaseRecord); err != nil {
		return false, err
	}
	if l.Instance != i {
		return false, fmt.Errorf("the lease is that of instance %q", l.Instance)
	}
	if c.Leases[p] == nil {
		c.Leases[p] = map[subject.Instance]*StoredLease{}
	}
	c.Leases[p][i] = l
	return old != nil && old.Hash == l.Hash && old.Since.Equal(l.Since), nil
}

// markerAge is when a marker is forgotten here. By then a core has removed it
// from the bucket, too.
const markerAge = time.Hour

// forgetMarkers drops old markers, but for the one that is the fence.
func (c *Content) forgetMarkers(now time.Time) {
	if len(c.Markers) == 0 || now.Sub(c.swept) < time.Minute {
		return
	}
	c.swept = now
	maps.DeleteFunc(c.Markers, func(_ string, m Marker) bool {
		return now.Sub(m.Seen) > markerAge && m.Revision != c.ManifestRevision
	})
}

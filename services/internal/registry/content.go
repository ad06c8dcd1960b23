package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// Record is the value of the key manifest.<plugin>. Every write of one is fenced
// against the writes of all others, so that admission sees them all.
type Record struct {
	Manifest   plugin.Manifest `json:"manifest"` // Instance is empty
	Hash       string          `json:"hash"`
	Registered time.Time       `json:"registered"`
	Suspended  *SuspendRecord  `json:"suspended,omitempty"`
	Draining   []Drain         `json:"draining,omitempty"`
	// Released is when a core found that no replica was left. A manifest that is
	// released and has no lease owns no names. Only a manifest that is not released may
	// get a first lease.
	Released time.Time `json:"released,omitzero"`
	// Lost is set if the last replica did not unregister: its lease ran out.
	Lost bool `json:"lost,omitempty"`
}

// SuspendRecord is a suspension with the replicas that the plugin had at the time.
type SuspendRecord struct {
	Suspension
	Instances []subject.Instance `json:"instances,omitempty"` // if they register again, it is not lifted
}

// Drain records that a replica gets no new calls.
type Drain struct {
	Instance subject.Instance `json:"instance"`
	By       By               `json:"by,omitempty"` // ByOperator; empty: the replica itself
	Reason   string           `json:"reason,omitempty"`
	At       time.Time        `json:"at"`
}

// LeaseRecord is the value of the key lease.<plugin>.<instance>. The first write is
// fenced against changes of the plugin's manifest, each renewal against all other
// writes of the lease.
type LeaseRecord struct {
	Instance subject.Instance `json:"instance"`
	Hash     string           `json:"hash"`
	Since    time.Time        `json:"since"`
}

// StoredRecord is a record in the bucket.
type StoredRecord struct {
	Record
	Revision uint64
	// Alone is when this process saw that the plugin has no lease, or that its record was
	// written without one; zero while it has one. It uses the monotonic clock.
	Alone time.Time
}

// StoredLease is a lease in the bucket.
type StoredLease struct {
	LeaseRecord
	Plugin   subject.Plugin
	Revision uint64
	Seen     time.Time // when this process saw the write; uses the monotonic clock
}

// Marker is the deletion marker of a key.
type Marker struct {
	Key      string
	Revision uint64
	Seen     time.Time
}

// Content is the content of the bucket, by key. The values must not be changed.
type Content struct {
	Revision         uint64 // of the last change
	ManifestRevision uint64 // of the last change of any manifest: the fence
	Records          map[subject.Plugin]*StoredRecord
	Leases           map[subject.Plugin]map[subject.Instance]*StoredLease
	Markers          map[string]Marker // deletion markers, by key; old ones are dropped

	swept time.Time // when old markers were last dropped
}

// NewContent returns the content of an empty bucket.
func NewContent() *Content {
	return &Content{
		Records: map[subject.Plugin]*StoredRecord{}, Leases: map[subject.Plugin]map[subject.Instance]*StoredLease{},
		Markers: map[string]Marker{},
	}
}

// Clone returns a copy without the markers, so that the original may change.
func (c *Content) Clone() *Content {
	n := *c
	n.Records, n.Markers = maps.Clone(c.Records), nil
	n.Leases = make(map[subject.Plugin]map[subject.Instance]*StoredLease, len(c.Leases))
	for p, l := range c.Leases {
		n.Leases[p] = maps.Clone(l)
	}
	return &n
}

// Live lists the plugin's valid leases, which are those with the hash of its manifest, by
// instance.
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
	slices.SortFunc(out, func(a, b *StoredLease) int { return cmp.Compare(a.Instance, b.Instance) })
	return out
}

// Owns reports whether the plugin owns its names: it has a lease, or is about to get
// one.
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

// Apply applies a change that was seen at now. An unreadable value counts as missing, and
// Apply returns an error for it. renewed is true if only the times of leases have changed.
func (c *Content) Apply(e journal.Entry, now time.Time) (renewed bool, err error) {
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

func (c *Content) applyRecord(p subject.Plugin, e journal.Entry) error {
	delete(c.Records, p)
	if e.Deleted {
		return nil
	}
	r := &StoredRecord{Revision: e.Revision}
	if err := json.Unmarshal(e.Value, &r.Record); err != nil {
		return err
	}
	if r.Manifest.Name != p || r.Hash == "" {
		return fmt.Errorf("the manifest belongs to plugin %q", r.Manifest.Name)
	}
	c.Records[p] = r
	return nil
}

// DecodeLease reads a lease of the plugin.
func DecodeLease(p subject.Plugin, e journal.Entry) (*StoredLease, error) {
	l := &StoredLease{Plugin: p, Revision: e.Revision}
	return l, json.Unmarshal(e.Value, &l.LeaseRecord)
}

func (c *Content) applyLease(
	p subject.Plugin, i subject.Instance, e journal.Entry, now time.Time,
) (renewed bool, err error) {
	old := c.Leases[p][i]
	if e.Deleted {
		delete(c.Leases[p], i)
		if len(c.Leases[p]) == 0 {
			delete(c.Leases, p)
		}
		return old == nil, nil
	}
	l, err := DecodeLease(p, e)
	if err != nil {
		return false, err
	}
	l.Seen = now
	if l.Instance != i {
		return false, fmt.Errorf("the lease belongs to instance %q", l.Instance)
	}
	if c.Leases[p] == nil {
		c.Leases[p] = map[subject.Instance]*StoredLease{}
	}
	c.Leases[p][i] = l
	return old != nil && old.Hash == l.Hash && old.Since.Equal(l.Since), nil
}

// markerAge is the age at which a marker is dropped here. By then a core has removed it
// from the bucket, too.
const markerAge = time.Hour

// forgetMarkers drops old markers, except the one that is the fence.
func (c *Content) forgetMarkers(now time.Time) {
	if len(c.Markers) == 0 || now.Sub(c.swept) < time.Minute {
		return
	}
	c.swept = now
	maps.DeleteFunc(c.Markers, func(_ string, m Marker) bool {
		return now.Sub(m.Seen) > markerAge && m.Revision != c.ManifestRevision
	})
}

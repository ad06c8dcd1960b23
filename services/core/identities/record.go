package identities

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
)

// record is an identity in the bucket, by its name.
type record struct {
	Charter    rights.Charter `json:"charter"`
	Generation int            `json:"generation"` // of its account: another one after it was revoked
	Invited    time.Time      `json:"invited"`
	By         subject.Writer `json:"by"`
	Keys       []key          `json:"keys"`
	Revoked    time.Time      `json:"revoked,omitzero"`
	Muted      time.Time      `json:"muted,omitzero"` // until when it can send no inputs

	revision uint64
}

// key is one credential of an identity.
type key struct {
	User   string    `json:"user"` // public key
	Issued time.Time `json:"issued"`
	Until  time.Time `json:"until,omitzero"` // when it is revoked; zero: not
	// It was revoked at once, also for a core whose clock has not reached Until.
	Ended bool `json:"ended,omitempty"`
}

// over reports whether it was revoked.
func (k key) over(now time.Time) bool { return k.Ended || !k.Until.IsZero() && !now.Before(k.Until) }

// maxKeys is how many credentials of an identity are remembered, at most; the oldest are revoked.
const maxKeys = 64

func decode(e journal.Entry) (*record, error) {
	r := &record{revision: e.Revision}
	if err := json.Unmarshal(e.Value, r); err != nil {
		return nil, fmt.Errorf("entry %s of bucket %s: %w", e.Key, journal.BucketIdentities, err)
	}
	if string(r.Charter.Name) != e.Key {
		return nil, fmt.Errorf("entry %s of bucket %s is about %q", e.Key, journal.BucketIdentities, r.Charter.Name)
	}
	return r, nil
}

// revoked are the credentials that have ended before their time.
func (r *record) revoked(now time.Time) (users []string) {
	if !r.Revoked.IsZero() {
		return []string{"*"}
	}
	for _, k := range r.Keys {
		if k.over(now) {
			users = append(users, k.User)
		}
	}
	return users
}

// muted reports whether it can send no inputs.
func (r *record) muted(now time.Time) bool { return r.Revoked.IsZero() && now.Before(r.Muted) }

// next is when a credential, or the time without inputs, ends next; zero: none will.
func (r *record) next(now time.Time) (at time.Time) {
	if r.muted(now) {
		at = r.Muted
	}
	for _, k := range r.Keys {
		if r.Revoked.IsZero() && !k.Ended && k.Until.After(now) && (at.IsZero() || k.Until.Before(at)) {
			at = k.Until
		}
	}
	return at
}

func (r *record) state(now time.Time) coreapi.IdentityState {
	switch {
	case !r.Revoked.IsZero():
		return coreapi.IdentityRevoked
	case !r.Charter.Expires.IsZero() && !now.Before(r.Charter.Expires):
		return coreapi.IdentityExpired
	}
	return coreapi.IdentityActive
}

func (r *record) public(now time.Time) coreapi.Identity {
	valid := 0
	if r.state(now) == coreapi.IdentityActive {
		valid = len(r.Keys) - len(r.revoked(now))
	}
	var muted time.Time
	if r.muted(now) {
		muted = r.Muted
	}
	return coreapi.Identity{
		Muted: muted, Charter: r.Charter, State: r.state(now), Invited: r.Invited, By: r.By, Ended: r.Revoked, Valid: valid,
	}
}

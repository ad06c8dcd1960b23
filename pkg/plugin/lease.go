package plugin

import "skandha.dev/pkg/subject"

// LeaseState is how far a registered replica is.
type LeaseState string

// The states of a lease.
const (
	Active    LeaseState = "active"    // it is asked
	Waiting   LeaseState = "waiting"   // not yet: Lease.Reason says for what
	Suspended LeaseState = "suspended" // not any more: Lease.Reason says why
	Draining  LeaseState = "draining"  // no new calls; those under way are answered
	Gone      LeaseState = "gone"      // it may exit
)

// Lease is what the registry answers to register, heartbeat and unregister.
type Lease struct {
	Plugin   subject.Plugin   `json:"plugin"`
	Instance subject.Instance `json:"instance"`
	State    LeaseState       `json:"state"`
	Reason   string           `json:"reason,omitempty"` // with Waiting and Suspended; perhaps with Draining and Gone
	TTLMS    int64            `json:"ttl_ms"`           // forgotten after, without a heartbeat; send one every third of it
	Hash     string           `json:"hash"`             // of the manifest without Instance
}

// Heartbeat renews a lease. The error not_found means: register again.
type Heartbeat struct {
	Instance subject.Instance `json:"instance"`
	Hash     string           `json:"hash"` // as the lease gave it
}

// Unregister drains and removes one replica. It is refused with the error
// conflict while others depend on the plugin, unless Force is set.
type Unregister struct {
	Instance subject.Instance `json:"instance"`
	Force    bool             `json:"force,omitempty"`
	Reason   string           `json:"reason,omitempty"` // for people
}

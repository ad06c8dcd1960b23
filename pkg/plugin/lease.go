package plugin

import "skandha.dev/pkg/subject"

// LeaseState is the state of a registered replica.
type LeaseState string

// The states of a lease.
const (
	Active    LeaseState = "active"    // receives requests
	Waiting   LeaseState = "waiting"   // receives none yet; Lease.Reason says what it waits for
	Suspended LeaseState = "suspended" // receives none any more; Lease.Reason says why
	Draining  LeaseState = "draining"  // receives no new requests, and answers those in flight
	Gone      LeaseState = "gone"      // may exit
)

// Lease is the registry's reply to register, heartbeat and unregister.
type Lease struct {
	Plugin   subject.Plugin   `json:"plugin"`
	Instance subject.Instance `json:"instance"`
	State    LeaseState       `json:"state"`
	Reason   string           `json:"reason,omitempty"` // set if Waiting or Suspended; optional if Draining or Gone
	// the lease expires after it without a heartbeat; send one every third of it
	TTLMS int64  `json:"ttl_ms"`
	Hash  string `json:"hash"` // of the manifest without Instance
}

// Heartbeat renews a lease. The error not_found means: register again.
type Heartbeat struct {
	Instance subject.Instance `json:"instance"`
	Hash     string           `json:"hash"` // as in the lease
}

// Unregister drains and removes one replica. It is refused with the error
// conflict while others depend on the plugin, unless Force is set.
type Unregister struct {
	Instance subject.Instance `json:"instance"`
	Force    bool             `json:"force,omitempty"`
	Reason   string           `json:"reason,omitempty"` // for people
}

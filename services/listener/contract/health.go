package contract

import (
	"sync"
	"time"

	"skandha.dev/pkg/subject"
)

// State says whether a listener works.
type State string

// The states of a listener.
const (
	StateOK       State = "ok"
	StateDegraded State = "degraded" // it works in part, or with delay
	StateDown     State = "down"     // nothing can be received
)

// Health is the state of a listener, for people.
type Health struct {
	State  State
	Reason string    // why it is not ok, and what to do; empty if it is
	Since  time.Time // when the state began
}

// HealthReporter is a [Listener] that knows how it is.
type HealthReporter interface {
	Listener
	Health() Health
}

// Sensing is a [HealthReporter] that sees or hears people, and that they can switch (see package
// senses).
type Sensing interface {
	HealthReporter
	Media() Media
}

// Media is what a [Sensing] listener does with people.
type Media struct {
	Kind      string        // senses.MediaCamera or senses.MediaMicrophone
	Agent     subject.Agent // that sees or hears by it
	On        bool          // it is switched on: it reads its source, or tries to
	Recording bool          // something comes from its source now
	Follows   uint64        // the revision of the switch that it follows
}

// Condition keeps a [Health]. The zero value is ok. It is safe for concurrent use.
type Condition struct {
	mu sync.Mutex
	is Health
}

// Set records the state; the time is kept if the state is the same. It reports whether state
// or reason are new.
func (c *Condition) Set(s State, reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.is
	if c.is.State != s {
		c.is.Since = time.Now().UTC()
	}
	c.is.State, c.is.Reason = s, reason
	return was.State != s || was.Reason != reason
}

// Health returns the state.
func (c *Condition) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is.State == "" {
		return Health{State: StateOK}
	}
	return c.is
}

// Worse returns the worse of two states, the first if they are equal.
func Worse(a, b Health) Health {
	rank := map[State]int{StateDegraded: 1, StateDown: 2}
	if rank[b.State] > rank[a.State] {
		return b
	}
	return a
}

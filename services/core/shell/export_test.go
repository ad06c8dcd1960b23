package shell

import (
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// SetClockSkew sets the assumed clock skew until the test ends.
func SetClockSkew(t *testing.T, d time.Duration) {
	before := clockSkew
	clockSkew = d
	t.Cleanup(func() { clockSkew = before })
}

// NewestFold is the newest fold version that the core has heard of.
func NewestFold(c *Core) int { return c.dir.newestFold() }

// NoteTrouble lists a session as damaged.
func NoteTrouble(c *Core, ref subject.Ref) {
	c.troubles.note(ref, coreapi.TroubleDamaged, "a test's")
}

// Granted returns the lists of permissions that the agent has now.
func Granted(c *Core, a subject.Agent) [][]string { return c.agent(a).Granted }

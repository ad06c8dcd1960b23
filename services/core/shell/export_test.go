package shell

import (
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
)

// SetClockSkew sets the assumed clock skew until the test ends.
func SetClockSkew(t *testing.T, d time.Duration) {
	before := loader.ClockSkew
	loader.ClockSkew = d
	t.Cleanup(func() { loader.ClockSkew = before })
}

// NewestFold returns the newest fold version that the core has seen in a beacon.
func NewestFold(c *Core) int { return c.dir.NewestFold() }

// NoteTrouble lists a session as damaged.
func NoteTrouble(c *Core, ref subject.Ref) {
	c.troubles.Note(ref, coreapi.TroubleDamaged, "a test's")
}

// Granted returns the agent's current lists of permissions.
func Granted(c *Core, a subject.Agent) [][]string { return c.plugins.Agent(a).Granted }

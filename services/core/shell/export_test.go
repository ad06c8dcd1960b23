package shell

import (
	"testing"
	"time"
)

// SetClockSkew sets the assumed clock skew until the test ends.
func SetClockSkew(t *testing.T, d time.Duration) {
	before := clockSkew
	clockSkew = d
	t.Cleanup(func() { clockSkew = before })
}

// NewestFold is the newest fold version that the core has heard of.
func NewestFold(c *Core) int { return c.dir.newestFold() }

package shell

import (
	"testing"
	"time"
)

// SetClockSkew has clocks taken for as exact as the test says, until it ends.
func SetClockSkew(t *testing.T, d time.Duration) {
	before := clockSkew
	clockSkew = d
	t.Cleanup(func() { clockSkew = before })
}

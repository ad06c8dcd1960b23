//go:build !linux

package bwrap

import "skandha.dev/services/sandbox/driver"

// Driver runs sandboxes with bubblewrap, on Linux.
type Driver struct{ driver.Driver }

// New fails with driver.ErrUnavailable: bubblewrap needs Linux.
func New(Config) (*Driver, error) {
	return nil, unavailable("bubblewrap needs Linux; use Docker")
}

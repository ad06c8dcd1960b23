package subject

import (
	"fmt"
	"strings"
)

// Beacon returns the subject on which a core reports how many inputs wait and whether the log
// can store: beacon.core.<instance>.
func Beacon(i Instance) string { return "beacon.core." + string(i) }

// AllBeacons matches the beacons of all cores.
const AllBeacons = "beacon.core.*"

// ParseBeacon parses beacon.core.<instance>.
func ParseBeacon(s string) (Instance, error) {
	name, ok := strings.CutPrefix(s, "beacon.core.")
	if !ok || !Valid(name) {
		return "", fmt.Errorf("%w: %q is not a beacon subject", ErrInvalidSubject, clip(s))
	}
	return Instance(name), nil
}

// Probe returns the subject on which a process stores a message without content, to find out
// whether the log can store again: probe.<instance>.
func Probe(i Instance) string { return "probe." + string(i) }

// AllProbes matches the probes of all processes.
const AllProbes = "probe.*"

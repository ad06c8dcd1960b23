// Package buildinfo identifies the running build.
package buildinfo

import "runtime/debug"

// Version is set by the linker (make build); otherwise it is read from the
// module's version control stamp.
var Version = ""

// String returns the version, which is never empty.
func String() string {
	if Version != "" {
		return Version
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "devel-" + s.Value[:12]
			}
		}
	}
	return "devel"
}

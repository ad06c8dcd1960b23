package deps

import (
	"fmt"
	"time"
)

// Code is why packages could not be installed.
type Code string

// The codes.
const (
	NotFound    Code = "not_found"   // the index has no such package or version
	NoWheel     Code = "no_wheel"    // it has, but as source, or for other platforms and versions of Python
	Conflict    Code = "conflict"    // the versions that were asked for do not go together
	Unreachable Code = "unreachable" // the index does not answer, or not what it should
	TooLarge    Code = "too_large"   // of bytes or files
	TooMany     Code = "too_many"    // more packages than MaxPackages
	Timeout     Code = "timeout"     // Config.Timeout has passed
	Hostile     Code = "refused"     // a package tried what packages may not
	NoPip       Code = "no_pip"      // the operator's: the sandbox's Python has none that is known
	Failed      Code = "failed"      // anything else
)

// Error is a failed installation in words for the model.
type Error struct {
	Code   Code
	Detail string // what pip said of it, bounded, one line of printable ASCII; may be empty
	// Ago is how long ago it was tried, if this is the answer of an earlier try.
	Ago time.Duration
	err error
}

// explanations say what happened, and what to do about it.
var explanations = map[Code]string{
	NotFound:    "the package index has no such package or version: check the name and the version",
	NoWheel:     "the package index has no wheel of it for this sandbox, and packages are never built from source: ask for another version or another package",
	Conflict:    "the versions that were asked for do not go together: loosen or leave out versions",
	Unreachable: "the package index does not answer as it should: try again later, or do without the package",
	TooLarge:    "the packages take more room than is allowed: ask for fewer or smaller ones",
	TooMany:     "too many packages: ask for fewer",
	Timeout:     "installing took longer than is allowed: ask for fewer packages, name exact versions, or try again later",
	Hostile:     "a package tried what no package may do while it is installed: do without it",
	NoPip:       "packages cannot be installed here: the sandbox's Python has no pip that can be used; an operator has to install it (Debian: python3-pip)",
	Failed:      "installing the packages failed",
}

func (e *Error) Error() string {
	s := explanations[e.Code]
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Ago > 0 {
		s += fmt.Sprintf("; it was tried %s ago, and is not tried again at once", e.Ago.Round(time.Second))
	}
	return s
}

// Unwrap is what the driver said.
func (e *Error) Unwrap() error { return e.err }

package deps

import (
	"fmt"
	"time"
)

// Code says why an installation failed.
type Code string

// The codes of an Error.
const (
	NotFound    Code = "not_found"   // the index has no such package or version
	NoWheel     Code = "no_wheel"    // the index has only source, or wheels for other platforms or versions of Python
	Conflict    Code = "conflict"    // the requested versions are incompatible
	Unreachable Code = "unreachable" // the index does not answer, or not correctly
	TooLarge    Code = "too_large"   // too many bytes or files
	TooMany     Code = "too_many"    // more packages than MaxPackages
	Timeout     Code = "timeout"     // Config.Timeout has passed
	Hostile     Code = "refused"     // a package tried something forbidden
	NoPip       Code = "no_pip"      // a problem for the operator: the sandbox's Python has no known pip
	Failed      Code = "failed"      // anything else
)

// Error is a failed installation, with a text for the model.
type Error struct {
	Code   Code
	Detail string // pip's explanation, bounded, one line of printable ASCII; may be empty
	// Ago is the age of the failure, if it is the cached result of an earlier attempt.
	Ago time.Duration
	err error
}

// explanations describe what happened, and what to do about it.
var explanations = map[Code]string{
	NotFound: "the package index has no such package or version: check the name and the version",
	NoWheel: "the package index has no wheel of it for this sandbox, and packages are never built from source: " +
		"request another version or another package",
	Conflict:    "the requested versions are incompatible: loosen or omit versions",
	Unreachable: "the package index does not answer correctly: try again later, or do without the package",
	TooLarge:    "the packages are too large: request fewer or smaller ones",
	TooMany:     "too many packages: request fewer",
	Timeout:     "the installation timed out: request fewer packages, give exact versions, or try again later",
	Hostile:     "a package tried something that packages must not do during installation: do without it",
	NoPip: "packages cannot be installed here: the sandbox's Python has no usable pip; " +
		"an operator must install it (Debian: python3-pip)",
	Failed: "the installation failed",
}

func (e *Error) Error() string {
	s := explanations[e.Code]
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Ago > 0 {
		s += fmt.Sprintf("; it was tried %s ago and is not retried yet", e.Ago.Round(time.Second))
	}
	return s
}

// Unwrap returns the driver's error.
func (e *Error) Unwrap() error { return e.err }

package sandbox_test

import (
	"testing"

	"skandha.dev/services/sandbox"
)

// BenchmarkWarmCall measures a call of python:execute in a session that has its sandbox,
// from the request on the bus to its answer.
func BenchmarkWarmCall(b *testing.B) {
	s := start(b, sandbox.Config{Warm: -1}).session("s")
	s.python("1")
	for b.Loop() {
		s.python("print(1)")
	}
}

// BenchmarkNewSession measures the first call of a session, which takes a warm sandbox if
// the pool has one.
func BenchmarkNewSession(b *testing.B) {
	s := start(b, sandbox.Config{Warm: 4}).session("s")
	for b.Loop() {
		s.reset()
		s.python("print(1)")
	}
}

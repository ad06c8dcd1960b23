package memory

import "skandha.dev/services/internal/store"

// The errors of a Store are those of package store.
var (
	// ErrNotFound means that the agent has no such memory here.
	ErrNotFound = store.ErrNotFound

	// ErrInvalid means that an argument can't be stored or searched for: a memory that
	// does not pass its check, a vector of another dimension, a cursor that no store
	// returned. Retrying the call is useless.
	ErrInvalid = store.ErrInvalid

	// ErrUnavailable means that the store cannot serve the call now.
	ErrUnavailable = store.ErrUnavailable

	// ErrClosed means that Close has been called.
	ErrClosed = store.ErrClosed
)

package store

import "errors"

var (
	// ErrNotFound means that the session has no snapshot here. The log may
	// nevertheless contain the session.
	ErrNotFound = errors.New("store: not found")

	// ErrInvalid means that an argument can't be stored: an empty id, a number out
	// of range, a cursor that no store returned. Retrying the call is useless.
	ErrInvalid = errors.New("store: invalid argument")

	// ErrUnavailable means that the store cannot serve the call now: it is unreachable,
	// locked, out of space or refuses the connection. The log may still serve it.
	ErrUnavailable = errors.New("store: unavailable")

	// ErrClosed means that Close has been called.
	ErrClosed = errors.New("store: closed")
)

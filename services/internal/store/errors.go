package store

import "errors"

var (
	// ErrNotFound says that the session has no snapshot here. The log may well
	// know the session.
	ErrNotFound = errors.New("store: not found")

	// ErrInvalid says that an argument can't be stored: an empty id, a number out
	// of range, a cursor that no store made. Repeating the call is useless.
	ErrInvalid = errors.New("store: invalid argument")

	// ErrUnavailable says that the store could not do it now: unreachable, locked,
	// out of space, refused. The log still can.
	ErrUnavailable = errors.New("store: unavailable")

	// ErrClosed says that Close was called before.
	ErrClosed = errors.New("store: closed")
)

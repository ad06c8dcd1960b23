package contract

import (
	"errors"
	"fmt"
)

// How an input can fail.
var (
	// ErrInvalid: the input itself is wrong, as the error says; it is not stored, and
	// to send it again does not help.
	ErrInvalid = errors.New("invalid input")
	// ErrRefused: the bus took it not, for want of a right or of room; it is not
	// stored, and to send it again helps once somebody has mended that.
	ErrRefused = errors.New("input refused by the bus")
	// ErrUnavailable: the bus did not acknowledge it in time. It may be stored; to
	// send it again with the same id is safe.
	ErrUnavailable = errors.New("input not acknowledged")
	// ErrOverloaded: too many inputs are waiting. The input is not stored; send it
	// again later. It is also ErrUnavailable.
	ErrOverloaded = fmt.Errorf("overloaded: %w", ErrUnavailable)
	// ErrNoRoom: the bus cannot store now. The input is not stored; send it again
	// later. It is also ErrUnavailable.
	ErrNoRoom = fmt.Errorf("no room: %w", ErrUnavailable)
	// ErrNotTaken: a listener ended before what the error names was acknowledged.
	ErrNotTaken = errors.New("not taken")
)

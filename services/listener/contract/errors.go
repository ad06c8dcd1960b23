package contract

import (
	"errors"
	"fmt"

	"skandha.dev/services/internal/submit"
)

// The ways in which an input can fail.
var (
	// ErrInvalid: the input itself is wrong; the error names the fault. It is not
	// stored, and sending it again does not help.
	ErrInvalid = errors.New("invalid input")
	// ErrRefused: the bus refused it because a permission or storage is missing. It is
	// not stored; send it again once that is fixed.
	ErrRefused = errors.New("input refused by the bus")
	// ErrUnavailable: the bus did not acknowledge it in time. It may be stored;
	// sending it again with the same id is safe.
	ErrUnavailable = errors.New("input not acknowledged")
	// ErrOverloaded: too many inputs are waiting. The input is not stored; send it
	// again later. It is also ErrUnavailable.
	ErrOverloaded = fmt.Errorf("overloaded: %w", ErrUnavailable)
	// ErrNoRoom: the bus cannot store now. The input is not stored; send it again
	// later. It is also ErrUnavailable.
	ErrNoRoom = fmt.Errorf("bus storage unavailable: %w", ErrUnavailable)
	// ErrNotTaken: a listener ended before the inputs that the error names were acknowledged.
	ErrNotTaken = errors.New("not accepted")
)

// Outage says, for a sender, why the bus has not acknowledged an input.
func Outage(err error) string {
	if _, fault := submit.Why(err); fault != nil {
		return fault.Error()
	}
	return "the bus does not answer"
}

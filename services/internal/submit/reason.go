package submit

import (
	"errors"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
)

// Reason is why a cause is not stored, or not known to be stored.
type Reason int

// The reasons. With those up to Refused the cause is not stored.
const (
	Invalid     Reason = iota + 1 // a field or a name is wrong; sending it again does not help
	TooLarge                      // larger than the bus accepts
	Overloaded                    // more inputs wait than cores allow; send it again later
	Full                          // the bus cannot store now; send it again later
	Denied                        // the bus denied the write; the credentials lack the permission
	Refused                       // the log refused it for another reason
	Unknown                       // not acknowledged in time; sending it again with the same id is safe
	Unavailable                   // the bus or a service does not answer; the same
)

// Why returns the reason of an error from the bus, and the fault that the bus reports if it
// cannot store.
func Why(err error) (r Reason, fault *bus.StorageFault) {
	failing := errors.As(err, &fault)
	switch {
	case errors.Is(err, bus.ErrOverloaded):
		return Overloaded, fault
	case errors.Is(err, bus.ErrTooLarge):
		return TooLarge, fault
	case errors.Is(err, bus.ErrInvalidArgument), errors.Is(err, event.ErrMalformed):
		return Invalid, fault
	case errors.Is(err, bus.ErrDenied):
		return Denied, fault
	case failing && errors.Is(err, bus.ErrRefused):
		return Full, fault
	case errors.Is(err, bus.ErrRefused):
		return Refused, fault
	case failing, errors.Is(err, bus.ErrAmbiguous):
		return Unknown, fault
	}
	return Unavailable, fault
}

package guard

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Control checks a connection before it is made; see net.Dialer.
type Control func(network, address string, c syscall.RawConn) error

// DialFunc is the DialContext of an http.Transport.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTimeout bounds a connection, DNS included.
const dialTimeout = 10 * time.Second

// Dial connects to public addresses only, and to those of the local network if the list names
// the host.
func Dial(locals AllowList) DialFunc {
	open, closed := DialWith(Public), DialWith(local)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if locals.dials(address) {
			return closed(ctx, network, address)
		}
		return open(ctx, network, address)
	}
}

// DialWith connects to the addresses that a control allows.
func DialWith(c Control) DialFunc {
	return (&net.Dialer{Timeout: dialTimeout, Control: c}).DialContext
}

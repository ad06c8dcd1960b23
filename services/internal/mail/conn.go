package mail

import (
	"fmt"
	"net"
	"sync/atomic"
)

// Conn is a connection to a mail server that reads at most as much as it is allowed to, so that
// a server cannot fill the memory.
type Conn struct {
	net.Conn
	left atomic.Int64
}

// Allow sets how many bytes may be read from now on.
func (c *Conn) Allow(n int64) { c.left.Store(n) }

// Read implements [net.Conn]. It closes the connection when the server has sent too much.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left.Add(-int64(n)) < 0 {
		_ = c.Close()
		return 0, fmt.Errorf("%s sent too much", c.RemoteAddr())
	}
	return n, err
}

package proxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// gone reports whether the other side has closed the connection, not only its own direction.
func gone(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	hup := false
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor
		n, err := unix.Poll(look, 0)
		hup = err == nil && n > 0 && look[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return hup || err != nil
}

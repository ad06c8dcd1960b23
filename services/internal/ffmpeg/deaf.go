package ffmpeg

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// A process that is stopped reads nothing. ffmpeg would wait for it, with the device open, until the
// process goes on. So it writes to a socket, where it does not wait for more than sendWait at a time, and
// gives up after five such waits and deafWait more: some eight seconds after the socket was full.
const (
	sendBuffer = 32 << 10 // bytes, of which the kernel makes twice as many
	sendWait   = 500 * time.Millisecond
	deafWait   = 5 * time.Second
)

// Output are the last arguments of ffmpeg: it writes to this process, and ends if that does not read.
var Output = []string{"-rw_timeout", fmt.Sprint(deafWait.Microseconds()), "pipe:1"}

// deafSockets returns two ends of which writes to the second one fail if nobody reads the first one.
func deafSockets() (out, in *os.File, err error) {
	syscall.ForkLock.RLock() // so that no other child inherits them
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	wait := syscall.NsecToTimeval(sendWait.Nanoseconds())
	err = syscall.SetsockoptTimeval(ends[1], syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &wait)
	if err == nil {
		err = syscall.SetsockoptInt(ends[1], syscall.SOL_SOCKET, syscall.SO_SNDBUF, sendBuffer)
	}
	if err == nil {
		err = syscall.SetNonblock(ends[0], true) // so that a reader ends when it is closed
	}
	out, in = os.NewFile(uintptr(ends[0]), "output"), os.NewFile(uintptr(ends[1]), "input")
	if err != nil {
		_, _ = out.Close(), in.Close()
		return nil, nil, os.NewSyscallError("setting up sockets", err)
	}
	return out, in, nil
}

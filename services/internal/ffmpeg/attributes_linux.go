package ffmpeg

import "syscall"

// attributes give a child a process group, and let it end with this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

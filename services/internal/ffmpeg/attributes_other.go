//go:build !linux

package ffmpeg

import "syscall"

// attributes give a child a process group. Here it outlives this process if that is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

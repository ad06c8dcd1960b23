package mailtest

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the server the head of a process group, which ends even if the test is
// killed and runs no cleanup: its other processes end with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

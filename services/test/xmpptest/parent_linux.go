package xmpptest

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the server even if the test is killed and runs no cleanup.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package e2etest

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the process also when it is stalled and the test is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

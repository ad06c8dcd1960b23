package foreigntest

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the program also when the test is killed and runs no cleanup.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

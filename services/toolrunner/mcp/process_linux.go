package mcp

import (
	"os/exec"
	"runtime"
	"syscall"
)

// grouped makes the command the leader of a process group that dies with this process.
func grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// live starts the command, and waits for its end. The kernel kills the command when the thread that
// started it ends, so that thread is kept.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait()
	close(p.ended)
}

func (p *process) terminate() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) }

func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

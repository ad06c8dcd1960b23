//go:build !linux

package mcp

import "os/exec"

func grouped(*exec.Cmd) {}

func (p *process) live(started chan<- error) {
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait()
	close(p.ended)
}

func (p *process) terminate() { _ = p.cmd.Process.Kill() }

func (p *process) kill() { _ = p.cmd.Process.Kill() }

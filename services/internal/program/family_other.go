//go:build !linux

package program

import (
	"errors"
	"os/exec"
)

// Adopt returns an error: only Linux lets a process adopt what others leave.
func Adopt() error {
	return errors.New("only on Linux; here, what a command starts in a session apart is not ended with it")
}

type family struct{}

func newFamily() family { return family{} }

func (family) mark(*exec.Cmd) {}

func (family) start(cmd *exec.Cmd) error { return cmd.Start() }

func (family) end(*exec.Cmd) {}

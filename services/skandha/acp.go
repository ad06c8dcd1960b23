package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/uibridge"
)

// acpCmd serves an editor that speaks the Agent Client Protocol.
type acpCmd struct {
	Agent string `short:"a" default:"main" help:"Agent that the editor talks to."`
}

// Run implements the command.
func (a *acpCmd) Run(ctx context.Context, g *globals) error {
	if !subject.Valid(a.Agent) {
		return fmt.Errorf("--agent: %w: %q", subject.ErrInvalidID, a.Agent)
	}
	// Only messages of the protocol may be written to the standard output. An editor that is gone
	// must not end the process before the system that it may run.
	out := os.Stdout
	os.Stdout = os.Stderr
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var conn *connection
	defer func() {
		if conn != nil {
			conn.close()
		}
	}()
	e := uibridge.Editor{Agent: subject.Agent(a.Agent), Version: buildinfo.String(), Log: g.logger()}
	for _, c := range commands.All() {
		if c.Name != commands.Quit {
			e.Commands = append(e.Commands, uibridge.EditorCommand(c))
		}
	}
	e.Open = func(ctx context.Context) (uibridge.EditorSystem, error) {
		c, err := g.connectToStay(ctx)
		if err != nil {
			return uibridge.EditorSystem{}, errors.Join(err, fmt.Errorf("start a system with: %s up", buildinfo.Command()))
		}
		if conn != nil { // the editor tries again
			conn.close()
		}
		conn = c
		fmt.Fprintf(os.Stderr, "skandha: agent %s of %s\n", a.Agent, c.about)
		sys := uibridge.EditorSystem{Bus: c.Journal, Writer: c.Writer}
		if c.own != nil {
			sys.Workspace, err = filepath.Abs(orElse(g.Workspace, filepath.Join(g.Data, "workspace")))
		}
		return sys, errors.Join(err, c.checkAgent(ctx, e.Agent))
	}
	return uibridge.ServeEditor(ctx, e, os.Stdin, out)
}

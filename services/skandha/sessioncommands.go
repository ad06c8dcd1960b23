package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// sessionsDeleteCmd deletes a session by the command /delete, as anybody in the session can.
type sessionsDeleteCmd struct {
	one
	Yes bool `short:"y" help:"Delete it."`
}

// Run implements the command.
func (d *sessionsDeleteCmd) Run(ctx context.Context, g *globals) error {
	return d.command(ctx, g, commands.Delete, func(ref subject.Ref, s *decide.State) error {
		if d.Yes {
			return nil
		}
		return fmt.Errorf("%s has %s: %q; to delete it, run %s sessions delete %s --agent %s --yes", ref,
			count(s.Turns, "turn"), line(s.Title, 60), buildinfo.Command(), ref.Session, ref.Agent)
	})
}

// sessionsUndeleteCmd brings a deleted session back by the command /undelete.
type sessionsUndeleteCmd struct{ one }

// Run implements the command.
func (u *sessionsUndeleteCmd) Run(ctx context.Context, g *globals) error {
	return u.command(ctx, g, commands.Undelete, func(ref subject.Ref, s *decide.State) error {
		if s.Deleted == nil {
			return errors.New(ref.String() + " was not deleted")
		}
		return nil
	})
}

// sessionsPauseCmd pauses a session by the command /pause.
type sessionsPauseCmd struct{ one }

// Run implements the command.
func (p *sessionsPauseCmd) Run(ctx context.Context, g *globals) error {
	return p.command(ctx, g, commands.Pause, nil)
}

// sessionsResumeCmd continues a paused session by the command /resume.
type sessionsResumeCmd struct{ one }

// Run implements the command.
func (r *sessionsResumeCmd) Run(ctx context.Context, g *globals) error {
	return r.command(ctx, g, commands.Resume, nil)
}

// command runs a slash command in a session that exists, unless check refuses, and prints the answer.
func (o *one) command(ctx context.Context, g *globals, name string, check func(subject.Ref, *decide.State) error) error {
	ref, err := o.ref()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var info shell.SessionInfo
	if err := c.Ask(ctx, coreapi.VerbSession, ref, &info); err != nil {
		return err // a command would create a session that does not exist
	}
	if check != nil {
		if err := check(ref, info.State); err != nil {
			return err
		}
	}
	answer, err := c.runCommand(ctx, ref, name)
	if err != nil {
		return err
	}
	fmt.Println(clean(answer))
	return nil
}

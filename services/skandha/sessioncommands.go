package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/core/commands"
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
	ref, err := d.ref()
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
		return err // a session that does not exist is not created to be deleted
	}
	if !d.Yes {
		return fmt.Errorf("%s has %s: %q; to delete it, run %s sessions delete %s --agent %s --yes", ref,
			count(info.State.Turns, "turn"), line(info.State.Title, 60), buildinfo.Command(), ref.Session, ref.Agent)
	}
	answer, err := c.runCommand(ctx, ref, commands.Delete)
	if err != nil {
		return err
	}
	fmt.Println(clean(answer))
	return nil
}

// sessionsUndeleteCmd brings a deleted session back by the command /undelete.
type sessionsUndeleteCmd struct{ one }

// Run implements the command.
func (u *sessionsUndeleteCmd) Run(ctx context.Context, g *globals) error {
	ref, err := u.ref()
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
		return err
	}
	if info.State.Deleted == nil {
		return errors.New(ref.String() + " was not deleted")
	}
	answer, err := c.runCommand(ctx, ref, commands.Undelete)
	if err != nil {
		return err
	}
	fmt.Println(clean(answer))
	return nil
}

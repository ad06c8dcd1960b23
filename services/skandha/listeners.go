package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
)

// listenersCmd shows the listeners, and switches those that see and hear.
type listenersCmd struct {
	List listenersListCmd `cmd:"" default:"withargs" help:"List the listeners of all processes, and whether cameras and microphones record."`
	On   listenersOnCmd   `cmd:"" help:"Switch a camera or microphone on."`
	Off  listenersOffCmd  `cmd:"" help:"Switch a camera or microphone off: its device is released, and nothing is recorded until it is switched on, also after a restart."`
}

type listenersListCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (l *listenersListCmd) Run(ctx context.Context, g *globals) error {
	return withJournal(ctx, g, func(ctx context.Context, j *journal.Journal) error {
		all, err := senses.List(ctx, j)
		switch {
		case err != nil:
			return err
		case l.JSON:
			return printJSON(os.Stdout, all, true)
		case len(all) == 0:
			fmt.Println("No listener runs.")
			return nil
		}
		return printListeners(os.Stdout, all)
	})
}

// withJournal connects, lets f work and disconnects.
func withJournal(ctx context.Context, g *globals, f func(context.Context, *journal.Journal) error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return f(ctx, c.Journal)
}

// light says whether a camera or microphone records; empty for other listeners.
func light(r senses.Report) string {
	switch {
	case r.Media == "":
		return ""
	case r.On && r.State != senses.StateDown:
		return "● recording"
	}
	return "off"
}

// oneListener is the argument of commands about one listener.
type oneListener struct {
	Name subject.Writer `arg:"" help:"Of the camera or microphone, as the list shows it."`
}

type (
	listenersOnCmd  struct{ oneListener }
	listenersOffCmd struct{ oneListener }
)

// Run implements the command.
func (c *listenersOnCmd) Run(ctx context.Context, g *globals) error { return c.turn(ctx, g, true) }

// Run implements the command.
func (c *listenersOffCmd) Run(ctx context.Context, g *globals) error { return c.turn(ctx, g, false) }

func (o oneListener) turn(ctx context.Context, g *globals, on bool) error {
	return withJournal(ctx, g, func(ctx context.Context, j *journal.Journal) error {
		if err := o.known(ctx, j); err != nil {
			return err
		}
		if err := senses.Turn(ctx, j, o.Name, on, whoami()); err != nil {
			return err
		}
		is, err := o.follows(ctx, j, on)
		switch {
		case err != nil:
			return err
		case !is && on:
			fmt.Printf("%s is switched on, and does not record yet; \"skandha listeners\" says why.\n", o.Name)
		case !is:
			fmt.Printf("%s is switched off, but its process has not confirmed that it does not record any more.\n", o.Name)
			return exitFailed
		case on:
			fmt.Printf("%s records.\n", o.Name)
		default:
			fmt.Printf("%s is off and records nothing.\n", o.Name)
		}
		return nil
	})
}

// known reports whether there is such a camera or microphone.
func (o oneListener) known(ctx context.Context, j *journal.Journal) error {
	all, err := senses.List(ctx, j)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range all {
		if r.Media != "" {
			names = append(names, string(r.Listener))
		}
	}
	if slices.Contains(names, string(o.Name)) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("no camera or microphone %q; none runs", o.Name)
	}
	return fmt.Errorf("no camera or microphone %q; there are %s", o.Name, strings.Join(names, ", "))
}

// followWait is how long a listener has to follow its switch.
const followWait = 10 * time.Second

// follows waits until the listener's process reports that it has followed its switch.
func (o oneListener) follows(ctx context.Context, j *journal.Journal, on bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, followWait)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := senses.List(ctx, j)
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(all, func(r senses.Report) bool { return r.Listener == o.Name })
		if i < 0 || all[i].On == on || all[i].State == senses.StateDown && !on {
			return i < 0 && !on || i >= 0, nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// whoami names the person at this terminal.
func whoami() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	return name[:min(len(name), senses.MaxByBytes)]
}

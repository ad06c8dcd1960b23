package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/contract"
)

// listenersCmd shows the listeners, and switches those that see and hear.
type listenersCmd struct {
	List listenersListCmd `cmd:"" default:"withargs" help:"List the listeners of all processes, and whether cameras and microphones record."`
	On   listenersOnCmd   `cmd:"" help:"Switch a camera or microphone on."`
	Off  listenersOffCmd  `cmd:"" help:"Switch a camera or microphone off: its device is released, and nothing is recorded until it is switched on, also after a restart. Fails if a process that could record has not confirmed."`

	Forget listenersForgetCmd `cmd:"" help:"Forget a process that does not report any more because it, or its machine, is gone for good."`
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

// signs are how a light looks.
var signs = map[senses.Light]string{
	senses.LightRecording: "● ", senses.LightNot: "○ ", senses.LightUnconfirmed: "! ", senses.LightUnknown: "! ",
}

// switched says whether a camera or microphone is switched on; empty for other listeners.
func switched(l senses.Listed) string {
	if l.Media == "" {
		return ""
	}
	return onOff(l.Wanted())
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// oneListener is the argument of commands about one listener.
type oneListener struct {
	Name subject.Writer `arg:"" help:"Of the camera or microphone, as the list shows it."`
}

// turnListener is a switch that is turned.
type turnListener struct {
	oneListener
	Wait time.Duration `default:"10s" help:"How long to wait for every process to follow."`
}

type (
	listenersOnCmd  struct{ turnListener }
	listenersOffCmd struct{ turnListener }
)

// Run implements the command.
func (c *listenersOnCmd) Run(ctx context.Context, g *globals) error { return c.turn(ctx, g, true) }

// Run implements the command.
func (c *listenersOffCmd) Run(ctx context.Context, g *globals) error { return c.turn(ctx, g, false) }

func (o turnListener) turn(ctx context.Context, g *globals, on bool) error {
	return withJournal(ctx, g, func(ctx context.Context, j *journal.Journal) error {
		if err := o.known(ctx, j); err != nil {
			return err
		}
		revision, err := senses.Turn(ctx, j, o.Name, on, whoami())
		if err != nil {
			return err
		}
		all, err := o.follow(ctx, j, on, revision)
		if err != nil {
			return fmt.Errorf("%s is switched %s, but whether it follows is unknown: %w", o.Name, onOff(on), err)
		}
		if !o.outcome(os.Stdout, all, on, revision) {
			return exitFailed
		}
		return nil
	})
}

// outcome says what came of a switch, and reports whether it is certain that it is obeyed. Off is only
// certain if every process that could record follows.
func (o oneListener) outcome(out io.Writer, all []senses.Listed, on bool, revision uint64) bool {
	pending := slices.DeleteFunc(slices.Clone(all), func(l senses.Listed) bool { return l.Off(revision) })
	records := slices.ContainsFunc(all, func(l senses.Listed) bool { return l.Light == senses.LightRecording })
	newer := slices.ContainsFunc(all, func(l senses.Listed) bool {
		return l.Switch != nil && l.Switch.Revision > revision && l.Switch.On != on
	})
	switch {
	case newer:
		_, _ = fmt.Fprintf(out, "%s was %s meanwhile.\n", o.Name, all[0].Switch)
		return false
	case on && records:
		_, _ = fmt.Fprintf(out, "%s records.\n", o.Name)
		return true
	case on:
		_, _ = fmt.Fprintf(out, "%s is switched on, and does not record yet; \"skandha listeners\" says why.\n", o.Name)
		return true
	case len(pending) == 0:
		_, _ = fmt.Fprintf(out, "%s is off and records nothing.\n", o.Name)
		return true
	}
	_, _ = fmt.Fprintf(out, "%s is switched off, but NOT CONFIRMED by every process: it may still record.\n", o.Name)
	for _, l := range pending {
		where := ""
		if l.Process.PID != 0 {
			where = " (" + clean(l.Process.String()) + ")"
		}
		_, _ = fmt.Fprintf(out, "  %s%s: last heard %s, %s\n", l.Instance, where, ago(l.Heard), lastLight(l))
	}
	_, _ = fmt.Fprintf(out, "The switch is stored and takes effect there as soon as the process runs and reaches the bus.\n"+
		"To be sure, end the process; if it is gone for good: skandha listeners forget %s INSTANCE\n", o.Name)
	return false
}

// lastLight says what a process has reported last.
func lastLight(l senses.Listed) string {
	switch {
	case l.Recording:
		return "recording"
	case l.On:
		return "switched on and not recording"
	}
	return "switched off before"
}

// known reports whether there is such a camera or microphone.
func (o oneListener) known(ctx context.Context, j *journal.Journal) error {
	all, err := senses.List(ctx, j)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range all {
		if r.Media != "" && !slices.Contains(names, string(r.Listener)) {
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

// follow waits until every process that reports the listener follows its switch, and returns what is
// known then.
func (o turnListener) follow(ctx context.Context, j *journal.Journal, on bool, revision uint64) ([]senses.Listed, error) {
	over := time.After(o.Wait)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := senses.List(ctx, j)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(l senses.Listed) bool { return l.Listener != o.Name })
		if !slices.ContainsFunc(all, func(l senses.Listed) bool { return hoped(l, on, revision) }) {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			return all, nil
		case <-tick.C:
		}
	}
}

// hoped reports whether a process may soon follow: it reports, and has not followed yet or only begins.
func hoped(l senses.Listed, on bool, revision uint64) bool {
	if l.State == senses.StateUnknown {
		return false
	}
	if !on {
		return !l.Off(revision)
	}
	return !l.Confirmed(revision) || !l.Recording && l.State == string(contract.StateDegraded)
}

// listenersForgetCmd removes a report.
type listenersForgetCmd struct {
	oneListener
	Instance subject.Instance `arg:"" help:"The process, as the list shows it."`
}

// Run implements the command.
func (c *listenersForgetCmd) Run(ctx context.Context, g *globals) error {
	return withJournal(ctx, g, func(ctx context.Context, j *journal.Journal) error {
		all, err := senses.List(ctx, j)
		if err != nil {
			return err
		}
		if err := c.check(all); err != nil {
			return err
		}
		if err := senses.Remove(ctx, j, c.Name, c.Instance); err != nil {
			return err
		}
		fmt.Printf("%s of %s is forgotten. If it runs after all, it is listed again when it reports.\n", c.Name, c.Instance)
		return nil
	})
}

// check reports why the process must not be forgotten: its report is all that is known of it.
func (c *listenersForgetCmd) check(all []senses.Listed) error {
	i := slices.IndexFunc(all, func(l senses.Listed) bool { return l.Listener == c.Name && l.Instance == c.Instance })
	switch {
	case i < 0:
		return fmt.Errorf("no process %s has a listener %s; \"skandha listeners\" lists them", c.Instance, c.Name)
	case all[i].State != senses.StateUnknown && !all[i].Process.Dead():
		return fmt.Errorf("%s reports, last %s; end it first", c.Instance, ago(all[i].Heard))
	}
	return nil
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

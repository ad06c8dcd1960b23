package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/turn"
)

// askCmd asks one question and waits for the end of its turn.
type askCmd struct {
	Text    []string      `arg:"" help:"Question, or a slash command such as /help; \"-\" reads standard input."`
	Agent   string        `short:"a" default:"main" help:"Agent to ask."`
	File    []string      `short:"f" type:"existingfile" placeholder:"FILE" help:"File that the model sees with the question, such as a photo; may be repeated."`
	Session string        `short:"s" placeholder:"NAME" help:"Session to continue. Default: a new one."`
	JSON    bool          `help:"Print every event of the turn as one line of JSON."`
	Yes     bool          `short:"y" help:"Approve every confirmation request of the session. Without this flag and without a terminal, they are refused. Those in the sessions of sub-agents are decided there."`
	Timeout time.Duration `default:"5m" help:"Stop waiting after this time; the turn continues."`
}

// Run implements the command.
func (a *askCmd) Run(ctx context.Context, g *globals) error {
	text := strings.Join(a.Text, " ")
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, event.MaxTextBytes+1))
		if err != nil {
			return err
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		fmt.Fprintf(os.Stderr, "skandha: the text is empty; for example: %s ask \"hello\"\n", buildinfo.Command())
		return exitUsage
	}
	ref, err := sessionRef(a.Agent, a.Session)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err = a.ask(ctx, g, ref, text)
	var code exit
	if err != nil && !errors.As(err, &code) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintf(os.Stderr, "skandha: no answer within %s: %s\n", a.Timeout, telemetry.Redact(err.Error()))
		return exitTimeout
	}
	return err
}

// ask sends the text and shows its turn.
func (a *askCmd) ask(ctx context.Context, g *globals, ref subject.Ref, text string) error {
	c, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if c.own != nil {
		fmt.Fprintf(os.Stderr, "skandha: no running system; started one for this question on %s\n", shellQuote(g.Data))
	}
	st := c.status(ctx)
	if err := knows(st, ref.Agent); err != nil {
		return err
	}
	if err := overloaded(st, text); err != nil {
		return err
	}
	if _, command := client.Typed(text); command == nil {
		if p := c.paused(ctx, ref); p != nil {
			fmt.Fprintf(os.Stderr, "skandha: %s; nothing was sent\n", pausedText(ref, p.By))
			return exitRefused
		}
	}
	items, err := c.Follow(ctx, ref)
	if err != nil {
		return err
	}
	files, err := c.upload(ctx, ref, a.File)
	if err != nil {
		return err
	}
	began := time.Now()
	seq, err := c.submit(ctx, ref, text, "ask", files...)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bus.ErrTimeout) {
		// The bus is given up earlier than after a.Timeout if it says that it cannot store.
		fmt.Fprintf(os.Stderr, "skandha: the bus did not acknowledge the input within %s: %v\n",
			time.Since(began).Round(time.Second), err)
		return exitTimeout
	}
	if err != nil {
		return err
	}
	w := &waiter{
		c: c, ref: ref, in: turn.Input{Sequence: seq}, json: a.JSON, yes: a.Yes, out: os.Stdout, err: os.Stderr,
		interactive: !a.JSON && isTerminal(os.Stdin), lines: newLineReader(os.Stdin),
	}
	err = w.wait(ctx, items)
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(os.Stderr, "skandha: no answer within %s%s; the turn continues in session %s\n", a.Timeout,
			w.missing(c.fault(ctx)), ref.Session)
		return exitTimeout
	}
	if errors.Is(err, context.Canceled) {
		end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := c.Cancel(end, ref, seq, "interrupted at the terminal"); err == nil {
			fmt.Fprintln(os.Stderr, "skandha: cancelled")
		}
		return exit(130)
	}
	return err
}

// checkAgent returns an error if core does not have the agent.
func (c *connection) checkAgent(ctx context.Context, agent subject.Agent) error {
	return knows(c.status(ctx), agent)
}

// status returns what core says of itself; nil if none is running, and an input waits for one.
func (c *connection) status(ctx context.Context) *coreapi.Status {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return nil
	}
	return &st
}

// knows returns an error if core does not have the agent: an input for it would leave a session without a
// conversation.
func knows(st *coreapi.Status, agent subject.Agent) error {
	if st != nil && !slices.Contains(st.Agents, agent) {
		return fmt.Errorf("unknown agent %s; the agents are %s", agent, join(st.Agents))
	}
	return nil
}

// overloaded returns an error if core accepts no inputs now because too many wait. A process that stays knows it
// from beacons, but this one is too young to have received any. Commands are never refused.
func overloaded(st *coreapi.Status, text string) error {
	if _, command := client.Typed(text); st == nil || command != nil {
		return nil
	}
	for _, f := range st.Faults {
		if f.What == coreapi.FaultOverload {
			return errors.New(clean(f.Message))
		}
	}
	return nil
}

func sessionRef(agent, session string) (subject.Ref, error) {
	if session == "" {
		session = "s-" + time.Now().Format("20060102-150405-") + fmt.Sprintf("%03d", os.Getpid()%1000)
	}
	return subject.ParseRef(agent, session)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// paused returns by whom the session was paused, and when; nil if it is not paused, or does not exist.
func (c *connection) paused(ctx context.Context, ref subject.Ref) *decide.Paused {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var info shell.SessionInfo
	if err := c.Ask(ctx, coreapi.VerbSession, ref, &info); err != nil || info.State == nil {
		return nil // an input waits for a core
	}
	return info.State.Paused
}

// pausedText says that a session is paused, and how it is resumed.
func pausedText(ref subject.Ref, by subject.Writer) string {
	return fmt.Sprintf("session %s is paused by %s; to continue it: %s sessions resume %s --agent %s", ref, by, buildinfo.Command(),
		ref.Session, ref.Agent)
}

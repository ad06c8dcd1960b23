package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/turn"
)

// chatCmd holds a conversation at the terminal, or with lines piped in.
type chatCmd struct {
	Agent   string `short:"a" default:"main" help:"Agent to talk to."`
	Session string `short:"s" placeholder:"NAME" help:"Session to continue. Default: a new one."`
	Yes     bool   `short:"y" help:"Approve every confirmation request."`
	Plain   bool   `help:"Print line by line, without a live region. Implied if standard input or output is not a terminal, and by TERM=dumb. NO_COLOR disables colours."`
}

// Run implements the command.
func (c *chatCmd) Run(ctx context.Context, g *globals) error {
	ref, err := sessionRef(c.Agent, c.Session)
	if err != nil {
		return err
	}
	if !c.Plain && canDraw() {
		return c.terminal(ctx, g, ref)
	}
	tty := isTerminal(os.Stdin) && isTerminal(os.Stdout)
	connect := g.connect
	if tty {
		connect = g.connectToStay
	}
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	if err := conn.checkAgent(ctx, ref.Agent); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items, err := conn.Follow(ctx, ref)
	if err != nil {
		return err
	}
	ch := &chat{
		conn: conn, ref: ref, items: items, yes: c.Yes, lines: newLineReader(os.Stdin),
		tty: tty, styles: stylesFor(os.Stdout),
	}
	return ch.run(ctx)
}

type chat struct {
	conn   *connection
	ref    subject.Ref
	items  <-chan follow.Item
	yes    bool
	lines  *lineReader
	tty    bool
	styles styles
	failed error
	again  string    // the last text, if its turn failed
	held   []*waiter // inputs that wait until the session is resumed
}

func (c *chat) run(ctx context.Context) error {
	if c.tty {
		s := c.styles
		fmt.Printf("%sSkandha%s — %s\n", s.bold, s.off, c.conn.about)
		for _, hint := range page(ctx, c.conn) {
			fmt.Printf("%s%s%s\n", s.dim, hint, s.off)
		}
		fmt.Printf("%ssession %s · /help for commands · Ctrl-C cancels a turn · Ctrl-D leaves%s\n\n", s.dim, c.ref, s.off)
	}
	for {
		if c.tty {
			fmt.Print(c.styles.bold + "> " + c.styles.off)
		}
		text, err := c.read(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			if c.tty {
				fmt.Println()
			}
			return c.left()
		}
		if err != nil {
			return err
		}
		text = strings.TrimRight(text, " \t\r\n") // a leading space marks a text that is not a command
		switch text {
		case "":
		case "/quit", "/exit":
			return c.left()
		case "/retry":
			if text = c.again; text == "" {
				fmt.Fprintln(os.Stderr, "skandha: nothing to retry: no turn has failed here")
				continue
			}
			fallthrough
		default:
			if err := c.turn(ctx, text); err != nil {
				return err
			}
		}
	}
}

// read waits for a line; Ctrl-C at the prompt also leaves.
func (c *chat) read(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if l, ok := c.lines.kept(); ok {
		return l.text, l.err
	}
	select {
	case l := <-c.lines.next():
		return l.text, l.err
	case <-ctx.Done():
		return "", context.Canceled
	}
}

// submit stores typed text as an input or a slash command.
func (c *connection) submit(
	ctx context.Context, ref subject.Ref, text, source string, files ...provider.File,
) (uint64, error) {
	say, command := client.Typed(text)
	if command != nil {
		return c.Run(ctx, ref, *command)
	}
	return c.Say(ctx, ref, event.Input{Text: say, Source: source, Files: files})
}

// left returns how the conversation ends: inputs that a paused session holds have no answer.
func (c *chat) left() error {
	if n := len(c.held); n > 0 {
		fmt.Fprintf(os.Stderr, "skandha: %s not answered: the session is paused; to continue it: %s sessions resume %s --agent %s\n",
			count(n, "input"), buildinfo.Command(), c.ref.Session, c.ref.Agent)
		return cmp.Or(c.failed, error(exitFailed))
	}
	return c.failed
}

// turn sends one text and shows its turn. Ctrl-C cancels the turn.
func (c *chat) turn(ctx context.Context, text string) error {
	_, command := client.Typed(text)
	var paused *decide.Paused
	if command == nil {
		c.again = text // until it has succeeded
		paused = c.conn.paused(ctx, c.ref)
	}
	seq, err := c.conn.submit(ctx, c.ref, text, "chat")
	if err != nil {
		fmt.Fprintln(os.Stderr, "skandha: "+clean(err.Error()))
		if !c.tty {
			c.failed = exitFailed
		}
		return nil
	}
	w := &waiter{
		c: c.conn, ref: c.ref, yes: c.yes, interactive: c.tty, out: os.Stdout, err: os.Stderr,
		lines: c.lines, in: turn.Input{Sequence: seq, Turn: decide.TurnID(seq)}, leaves: command == nil,
	}
	if paused != nil {
		c.held = append(c.held, w)
		c.sayHeld()
		return nil
	}
	if err := c.await(ctx, w, text); err != nil || command == nil {
		return err
	}
	// It may have been /resume
	for len(c.held) > 0 && c.conn.paused(ctx, c.ref) == nil {
		next := c.held[0]
		c.held = c.held[1:]
		if err := c.await(ctx, next, text); err != nil {
			return err
		}
	}
	return nil
}

// sayHeld says why the turn of an input is not waited for: what ends the pause may be typed here.
func (c *chat) sayHeld() {
	fmt.Fprintln(os.Stderr, "skandha: the session is paused; the input waits until /resume")
}

// await shows the turn of an input.
func (c *chat) await(ctx context.Context, w *waiter, text string) error {
	stop := c.cancelOnInterrupt(ctx, w.in.Sequence)
	defer stop()
	err := w.wait(ctx, c.items)
	if errors.Is(err, errHeld) {
		c.held = append([]*waiter{w}, c.held...) // what was typed since comes after it
		c.sayHeld()
		return nil
	}
	if _, ok := errors.AsType[exit](err); ok {
		if !c.tty {
			c.failed = err // piped: the exit code reports it
		} else if c.again == text {
			fmt.Fprintln(os.Stderr, "skandha: /retry sends it again")
		}
		return nil
	}
	if err == nil && c.again == text {
		c.again = ""
	}
	return err
}

func (c *chat) cancelOnInterrupt(ctx context.Context, seq uint64) (stop func()) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-interrupts:
				if err := c.conn.Cancel(ctx, c.ref, seq, "Ctrl-C"); err != nil {
					fmt.Fprintln(os.Stderr, "skandha: cancelling: "+err.Error())
				}
			}
		}
	})
	return func() { signal.Stop(interrupts); close(done); ended.Wait() }
}

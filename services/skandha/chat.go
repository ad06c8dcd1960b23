package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/follow"
)

// chatCmd is a conversation at the terminal, or with lines piped in.
type chatCmd struct {
	Agent   string `short:"a" default:"main" help:"Agent to talk to."`
	Session string `short:"s" placeholder:"NAME" help:"Session to go on with. Default: a new one."`
	Yes     bool   `short:"y" help:"Approve every confirmation request."`
}

// Run implements the command.
func (c *chatCmd) Run(ctx context.Context, g *globals) error {
	ref, err := sessionRef(c.Agent, c.Session)
	if err != nil {
		return err
	}
	conn, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items, err := conn.Follow(ctx, ref)
	if err != nil {
		return err
	}
	ch := &chat{
		conn: conn, ref: ref, items: items, yes: c.Yes, lines: bufio.NewReader(os.Stdin),
		tty: isTerminal(os.Stdin) && isTerminal(os.Stdout), styles: stylesFor(os.Stdout),
	}
	return ch.run(ctx)
}

type chat struct {
	conn   *connection
	ref    subject.Ref
	items  <-chan follow.Item
	yes    bool
	lines  *bufio.Reader
	tty    bool
	styles styles
	failed error
}

func (c *chat) run(ctx context.Context) error {
	if c.tty {
		s := c.styles
		fmt.Printf("%sSkandha%s — %s\n", s.bold, s.off, c.conn.about)
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
			return c.failed
		}
		if err != nil {
			return err
		}
		text = strings.TrimSpace(text)
		switch text {
		case "":
		case "/quit", "/exit":
			return c.failed
		default:
			if err := c.turn(ctx, text); err != nil {
				return err
			}
		}
	}
}

// read waits for a line; Ctrl-C at the prompt leaves, too.
func (c *chat) read(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := c.lines.ReadString('\n')
		if text != "" {
			err = nil
		}
		got <- result{text, err}
	}()
	select {
	case r := <-got:
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Canceled
	}
}

// turn says one thing and shows what comes of it. Ctrl-C cancels the turn.
func (c *chat) turn(ctx context.Context, text string) error {
	var seq uint64
	var err error
	if name, isCommand := strings.CutPrefix(text, "/"); isCommand {
		words := strings.Fields(name)
		if len(words) == 0 {
			words = []string{"help"}
		}
		seq, err = c.conn.Command(ctx, c.ref, words[0], words[1:]...)
		if words[0] == "help" && err == nil {
			defer fmt.Println("- `/quit` — leave")
		}
	} else {
		seq, err = c.conn.Say(ctx, c.ref, event.Input{Text: text, Source: "chat"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skandha: "+err.Error())
		return nil
	}
	stop := c.cancelOnInterrupt(ctx, seq)
	defer stop()
	w := &waiter{
		c: c.conn, ref: c.ref, seq: seq, yes: c.yes, interactive: c.tty, out: os.Stdout, err: os.Stderr,
		answers: c.lines, turn: decide.TurnID(seq),
	}
	err = w.wait(ctx, c.items)
	var code exit
	if errors.As(err, &code) {
		if !c.tty {
			c.failed = err // piped: the exit code tells
		}
		return nil
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

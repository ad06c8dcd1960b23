package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/history"
	"skandha.dev/services/skandha/terminal"
)

// canDraw reports whether the terminal takes more than lines.
func canDraw() bool {
	return isTerminal(os.Stdin) && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// terminal holds the conversation with a live region.
func (c *chatCmd) terminal(ctx context.Context, g *globals, ref subject.Ref) error {
	// Of kill, and of a terminal that was closed: at the keyboard Ctrl-C is a key.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGHUP)
	defer stop()
	logs, release, err := captureStderr()
	if err != nil {
		return err
	}
	defer release()
	if g.Log == defaultLog && g.NATS == "" { // another level was asked for to be read here
		if g.logFile, err = openLogFile(g.Data); err != nil {
			g.logger().Warn("warnings are shown here", "error", err) // a directory that cannot be written
		} else {
			defer g.logFile.end()
		}
	}
	conn, err := g.connectToStay(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	if err := conn.knows(ctx, ref.Agent); err != nil {
		return err
	}
	cfg := terminal.Config{
		Client: door{conn, ref}, Ref: ref, Writer: conn.Writer, Commands: completions(), About: conn.about, Hints: page(ctx, conn), Logs: logs,
		History: filepath.Join(g.Data, "chat_history"), Yes: c.Yes, NoColour: os.Getenv("NO_COLOR") != "", Now: time.Now, NewID: client.NewID,
		Where: g.where(),
	}
	if conn.own != nil {
		cfg.Failed = conn.own.Failed()
	}
	end, err := follow.End(ctx, conn.Bus, ref)
	if err != nil {
		return err
	}
	if cfg.Items, err = conn.FollowFrom(ctx, ref, end); err != nil {
		return err
	}
	if c.Session != "" {
		if cfg.Past, cfg.Backlog, err = earlier(ctx, conn, ref, end.Commit); err != nil {
			return err
		}
	}
	return terminal.Run(ctx, cfg, os.Stdin, os.Stdout)
}

// page is a line about the web page, if there is one.
func page(ctx context.Context, conn *connection) []string {
	l, err := conn.page(ctx)
	if err != nil {
		return nil // without it the terminal is all there is
	}
	return []string{"page, opens once: " + l.URL}
}

func completions() []terminal.Command {
	out := []terminal.Command{{Name: "retry", Help: "send the input again whose turn failed"}}
	for _, c := range decide.Commands() {
		out = append(out, terminal.Command{Name: c.Name, Args: c.Args, Help: c.Help})
	}
	slices.SortFunc(out, func(a, b terminal.Command) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// pastTurns is how many turns are shown of a session that is gone on with.
const pastTurns = 3

// earlier reads the session's latest turns up to a commit: those that have ended,
// and what has happened in the one that goes on.
func earlier(ctx context.Context, conn *connection, ref subject.Ref, upTo uint64) (past []terminal.Past, open []follow.Item, err error) {
	turns, err := history.Last(ctx, conn.Bus, ref, pastTurns+1)
	if err != nil && !errors.Is(err, history.ErrNoTurn) {
		return nil, nil, err
	}
	for _, t := range turns {
		var items []follow.Item
		ended := false
		for _, c := range t.Commits {
			if c.Sequence > upTo { // it will be told of
				break
			}
			for i, e := range c.Events {
				items = append(items, follow.Item{Commit: c.Sequence, Index: i, Event: withText(e, t)})
				ended = ended || e.Type.Terminal()
			}
		}
		switch p := (terminal.Past{Writer: t.Input.Writer, Source: t.Input.Source, Text: t.Input.Text}); {
		case !ended:
			open = items
		case t.Recorded != nil:
			p.Answer = t.Recorded.Answer
			past = append(past, p)
		case t.Failed != nil:
			p.Answer, p.Failed = fmt.Sprintf("%s: %s", t.Failed.Code, t.Failed.Reason), true
			past = append(past, p)
		}
	}
	return past[max(len(past)-pastTurns, 0):], open, nil
}

// withText gives a perception that had waited its text, which stands further back.
func withText(e event.Event, t history.Turn) event.Event {
	var p event.Perceived
	if e.Type != event.TypePerceived || e.DataAs(&p) != nil || p.Text != "" {
		return e
	}
	p.Text, p.Source = t.Input.Text, t.Input.Source
	again := event.New(e.Ref(), e.ID, e.Source, p)
	again.Time, again.Cause, again.Turn = e.Time, e.Cause, e.Turn
	return again
}

// door is the terminal's way to the session.
type door struct {
	conn *connection
	ref  subject.Ref
}

// Say implements terminal.Door.
func (d door) Say(ctx context.Context, in event.Input) (uint64, error) {
	return d.conn.Say(ctx, d.ref, in)
}

// Run implements terminal.Door.
func (d door) Run(ctx context.Context, c event.Command) (uint64, error) {
	return d.conn.Run(ctx, d.ref, c)
}

// Answer implements terminal.Door.
func (d door) Answer(ctx context.Context, a event.Confirmation) error {
	_, err := d.conn.Answer(ctx, d.ref, a)
	return err
}

// Cancel implements terminal.Door.
func (d door) Cancel(ctx context.Context, seq uint64) error {
	return d.conn.Cancel(ctx, d.ref, seq, "Ctrl-C")
}

// Connected implements terminal.Door.
func (d door) Connected() bool { return d.conn.Bus.Connected() }

// Fault implements terminal.Door.
func (d door) Fault() string {
	if f := d.conn.Bus.StorageFault(); f != nil {
		return f.Error()
	}
	return ""
}

// Describe implements terminal.Door.
func (d door) Describe(ctx context.Context, name string) (string, error) {
	var tools []coreapi.ToolInfo
	if err := d.conn.Ask(ctx, coreapi.VerbTools, nil, &tools); err != nil {
		return "", err
	}
	i := slices.IndexFunc(tools, func(t coreapi.ToolInfo) bool { return t.Name == name })
	if i < 0 {
		return "", fmt.Errorf("no tool is called %s now", name)
	}
	t := tools[i]
	text := t.Description
	if len(t.Permissions) > 0 {
		text += fmt.Sprintf("; it declares %q", t.Permissions)
	}
	if t.Risk != "" {
		text += fmt.Sprintf("; risk %s", t.Risk)
	}
	return text, nil
}

// captureStderr has what this process writes there, its log above all, shown by the
// terminal instead of drawn over. What comes after release is written as ever.
func captureStderr() (lines <-chan string, release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("catching the log: %w", err)
	}
	was := os.Stderr
	os.Stderr = w
	out, done := make(chan string, 256), make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		defer func() { _, _ = io.Copy(io.Discard, r) }() // of a longer line: who writes must not stand still
		for s.Scan() {
			select {
			case out <- s.Text():
			default: // nobody reads any more, or far too slowly
				fmt.Fprintln(was, clean(s.Text()))
			}
		}
	}()
	return out, func() {
		os.Stderr = was
		_ = w.Close()
		<-done
		for l := range out {
			fmt.Fprintln(was, clean(l))
		}
	}, nil
}

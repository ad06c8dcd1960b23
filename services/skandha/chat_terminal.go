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
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/history"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/skandha/terminal"
)

// canDraw reports whether the terminal can do more than print lines.
func canDraw() bool {
	return isTerminal(os.Stdin) && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// terminal holds the conversation with a live region.
func (c *chatCmd) terminal(ctx context.Context, g *globals, ref subject.Ref) error {
	// From kill, or from a closed terminal: at the keyboard, Ctrl-C is a key.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGHUP)
	defer stop()
	logs, release, err := captureStderr()
	if err != nil {
		return err
	}
	defer release()
	if g.Log == defaultLog && g.NATS == "" { // another level was set in order to see it here
		if g.logFile, err = openLogFile(g.Data); err != nil {
			g.logger().Warn("warnings are shown here", "error", err) // the directory is not writable
		} else {
			defer g.logFile.end()
		}
	}
	conn, err := g.connectToStay(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	if err := conn.checkAgent(ctx, ref.Agent); err != nil {
		return err
	}
	cfg := terminal.Config{
		Client: sessionClient{conn, ref}, Ref: ref, Writer: conn.Writer, Commands: completions(), About: conn.about,
		Hints: page(ctx, conn), Logs: logs,
		History: filepath.Join(g.Data, "chat_history"), Yes: c.Yes, NoColour: os.Getenv("NO_COLOR") != "", Now: time.Now,
		NewID: submit.NewID,
		Where: g.where(),
	}
	if conn.own != nil {
		cfg.Failed = conn.own.Failed()
	}
	end, err := follow.End(ctx, conn.Journal, ref)
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

// page returns a line with a link to the web page, if there is one.
func page(ctx context.Context, conn *connection) []string {
	l, err := conn.page(ctx)
	if err != nil {
		return nil // chat works without a page
	}
	return []string{"page (one-time link): " + l.URL}
}

func completions() []terminal.Command {
	out := []terminal.Command{{Name: "retry", Help: "send the input of the failed turn again"}}
	for _, c := range commands.All() {
		out = append(out, terminal.Command{Name: c.Name, Args: c.Args, Help: c.Help})
	}
	slices.SortFunc(out, func(a, b terminal.Command) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// pastTurns is how many turns of a continued session are shown.
const pastTurns = 3

// earlier reads the session's latest turns up to a commit: past turns have ended, open
// holds the items of the running one.
func earlier(
	ctx context.Context, conn *connection, ref subject.Ref, upTo uint64,
) (past []terminal.Past, open []follow.Item, err error) {
	turns, err := history.Last(ctx, conn.Journal, ref, pastTurns+1)
	if err != nil && !errors.Is(err, history.ErrNoTurn) {
		return nil, nil, err
	}
	for _, t := range turns {
		var items []follow.Item
		ended := false
		for _, c := range t.Commits {
			if c.Sequence > upTo { // it will arrive as an item
				break
			}
			for i, e := range c.Events {
				items = append(items, follow.Item{Commit: c.Sequence, Index: i, Event: withText(e, t)})
				ended = ended || e.Type.Terminal()
			}
		}
		switch p := (terminal.Past{Writer: t.Perceived.Writer, Source: t.Perceived.Source, Text: t.Perceived.Text}); {
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

// withText adds the text to the perception of an input that had been queued: the log has it
// in an earlier event.
func withText(e event.Event, t history.Turn) event.Event {
	_ = event.Visitor{Perceived: func(p event.Perceived) {
		if p.Text != "" {
			return
		}
		p.Text, p.Source = t.Perceived.Text, t.Perceived.Source
		again := event.New(e.Ref(), e.ID, e.Source, p)
		again.Time, again.Cause, again.Turn = e.Time, e.Cause, e.Turn
		e = again
	}}.Visit(e)
	return e
}

// sessionClient implements terminal.Client for one session.
type sessionClient struct {
	conn *connection
	ref  subject.Ref
}

// Say implements terminal.Client.
func (s sessionClient) Say(ctx context.Context, in event.Input) (uint64, error) {
	return s.conn.Say(ctx, s.ref, in)
}

// Run implements terminal.Client.
func (s sessionClient) Run(ctx context.Context, c event.Command) (uint64, error) {
	return s.conn.Run(ctx, s.ref, c)
}

// Answer implements terminal.Client.
func (s sessionClient) Answer(ctx context.Context, a event.Confirmation) error {
	_, err := s.conn.Answer(ctx, s.ref, a)
	return err
}

// Cancel implements terminal.Client.
func (s sessionClient) Cancel(ctx context.Context, seq uint64) error {
	return s.conn.Cancel(ctx, s.ref, seq, "Ctrl-C")
}

// Connected implements terminal.Client.
func (s sessionClient) Connected() bool { return s.conn.Journal.Connected() }

// Fault implements terminal.Client.
func (s sessionClient) Fault() string {
	if f := s.conn.Journal.StorageFault(); f != nil {
		return f.Error()
	}
	return ""
}

// Describe implements terminal.Client.
func (s sessionClient) Describe(ctx context.Context, name string) (string, error) {
	var tools []coreapi.ToolInfo
	if err := s.conn.Ask(ctx, coreapi.VerbTools, nil, &tools); err != nil {
		return "", err
	}
	i := slices.IndexFunc(tools, func(t coreapi.ToolInfo) bool { return t.Name == name })
	if i < 0 {
		return "", fmt.Errorf("no tool %s is offered now", name)
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

// captureStderr redirects standard error, above all the log, to the terminal's view,
// which would otherwise be drawn over it. After release it is written as before.
func captureStderr() (lines <-chan string, release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("capturing the log: %w", err)
	}
	was := os.Stderr
	os.Stderr = w
	out, done := make(chan string, 256), make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		defer func() { _, _ = io.Copy(io.Discard, r) }() // a longer line ended the scan: writers must not block
		for s.Scan() {
			select {
			case out <- s.Text():
			default: // the reader has stopped, or is far too slow
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

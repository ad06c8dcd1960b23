package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// outboxCmd shows and changes the messages to people that are not delivered.
type outboxCmd struct {
	List   outboxListCmd   `cmd:"" default:"withargs" help:"List the messages to people that are not delivered, by destination and in order."`
	Show   outboxShowCmd   `cmd:"" help:"Show all of a message."`
	Resend outboxResendCmd `cmd:"" help:"Send a dead message, although it may have been sent before."`
	Drop   outboxDropCmd   `cmd:"" help:"Delete a message that is not being sent. It will not be delivered."`
}

type outboxListCmd struct {
	Dead  bool `help:"Only messages that were given up."`
	Limit int  `short:"n" default:"100" help:"Maximum number of messages, up to 1000."`
	JSON  bool `help:"Print JSON."`
}

// Run implements the command.
func (l *outboxListCmd) Run(ctx context.Context, g *globals) error {
	q := coreapi.OutboxQuery{Limit: l.Limit}
	if l.Dead {
		q.State = coreapi.OutboxDead
	}
	var p coreapi.OutboxPage
	if err := administer(ctx, g, coreapi.VerbOutbox, q, &p); err != nil {
		return err
	}
	switch {
	case l.JSON:
		return printJSON(os.Stdout, p, true)
	case len(p.Messages) == 0 && l.Dead:
		fmt.Println("No message was given up.")
		return nil
	case len(p.Messages) == 0:
		fmt.Println("Everything is delivered.")
		return nil
	}
	return printOutbox(os.Stdout, p)
}

func printOutbox(out io.Writer, p coreapi.OutboxPage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STATE\tAGE\tVIA\tTO\tKIND\tID\tTEXT OR ERROR")
	dead := 0
	for _, m := range p.Messages {
		said := m.Text
		if m.Error != "" {
			said = m.Error
		}
		if m.State == coreapi.OutboxDead {
			dead++
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.State, age(m.Stored), m.Via,
			line(m.To, 32), m.Kind, m.ID, line(said, 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if p.More {
		_, _ = fmt.Fprintln(out, "There are more; raise --limit.")
	}
	if dead > 0 {
		_, _ = fmt.Fprintf(out, "Dead messages wait for you:  %[1]s outbox resend ID, or  %[1]s outbox drop ID\n", buildinfo.Command())
	}
	return nil
}

// age is how long ago a message was stored; what others have written into the bucket may not say.
func age(stored time.Time) string {
	if stored.IsZero() {
		return "unknown"
	}
	return time.Since(stored).Round(time.Second).String()
}

// oneMessage is the argument of commands about one message.
type oneMessage struct {
	ID string `arg:"" help:"Of the message, as the list shows it."`
}

type outboxShowCmd struct {
	oneMessage
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (s *outboxShowCmd) Run(ctx context.Context, g *globals) error {
	var p coreapi.OutboxPage
	if err := administer(ctx, g, coreapi.VerbOutbox, coreapi.OutboxQuery{ID: s.ID}, &p); err != nil {
		return err
	}
	if len(p.Messages) == 0 {
		return fmt.Errorf("no message %q is in the outbox; it may be delivered", s.ID)
	}
	m, stored := p.Messages[0], "at an unknown time"
	if !p.Messages[0].Stored.IsZero() {
		stored = p.Messages[0].Stored.Local().Format(time.DateTime)
	}
	if s.JSON {
		return printJSON(os.Stdout, m, true)
	}
	fmt.Printf("%s for %s by %s, of session %s/%s, stored %s\nstate     %s\n", m.Kind, clean(m.To), m.Via, m.Agent, m.Session,
		stored, m.State)
	if m.Attempts > 0 {
		fmt.Printf("attempts  %d\n", m.Attempts)
	}
	if m.Error != "" {
		fmt.Printf("error     %s\n", clean(m.Error))
	}
	if !m.Next.IsZero() && m.State != coreapi.OutboxDead {
		fmt.Printf("next try  %s\n", m.Next.Local().Format(time.DateTime))
	}
	fmt.Printf("\n%s\n", clean(m.Text))
	return nil
}

type outboxResendCmd struct{ oneMessage }

// Run implements the command.
func (r *outboxResendCmd) Run(ctx context.Context, g *globals) error {
	if err := changeOutbox(ctx, g, coreapi.OutboxResend, r.ID); err != nil {
		return err
	}
	fmt.Println("It is being sent again.")
	return nil
}

type outboxDropCmd struct{ oneMessage }

// Run implements the command.
func (d *outboxDropCmd) Run(ctx context.Context, g *globals) error {
	if err := changeOutbox(ctx, g, coreapi.OutboxDrop, d.ID); err != nil {
		return err
	}
	fmt.Println("It was deleted and will not be delivered.")
	return nil
}

func changeOutbox(ctx context.Context, g *globals, what coreapi.OutboxAction, id string) error {
	return administer(ctx, g, coreapi.VerbOutbox, coreapi.OutboxQuery{Action: what, ID: id, Caller: writer()}, &coreapi.OutboxPage{})
}

// Package client connects a user's program to a running system: it sends
// inputs, answers confirmation requests, cancels turns, and follows sessions.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/submit"
)

// Client stores causes for one writer, asks services, and follows sessions.
type Client struct {
	submit.Sender
	Journal *journal.Journal
	Log     *slog.Logger
	caller  *bus.Caller
}

// New returns a client that uses a connection.
func New(b *journal.Journal, w subject.Writer, log *slog.Logger) (*Client, error) {
	c, err := b.NewCaller()
	if err != nil {
		return nil, fmt.Errorf("opening the reply subscription: %w", err)
	}
	return &Client{Sender: submit.Sender{Bus: b.Bus, Writer: w}, Journal: b, Log: log, caller: c}, nil
}

// As returns a client of the same connection that publishes for another writer.
func (c *Client) As(w subject.Writer) *Client {
	d := *c
	d.Writer = w
	return &d
}

// Close ends the reply subscription of the client and of all made from it by As.
// The connection stays.
func (c *Client) Close() error { return c.caller.Close() }

// Follow sends the session's events from now on, without gaps or repetitions.
func (c *Client) Follow(ctx context.Context, ref subject.Ref) (<-chan follow.Item, error) {
	end, err := follow.End(ctx, c.Journal, ref)
	if err != nil {
		return nil, err
	}
	return follow.Follow(ctx, c.Journal, ref, end, c.Log)
}

// FollowFrom sends the session's events from the beginning.
func (c *Client) FollowFrom(ctx context.Context, ref subject.Ref, at follow.Position) (<-chan follow.Item, error) {
	return follow.Follow(ctx, c.Journal, ref, at, c.Log)
}

// Ask asks any core replica a question about itself and decodes the answer.
func (c *Client) Ask(ctx context.Context, verb string, question, answer any) error {
	return c.AskService(ctx, coreapi.ServiceName, verb, question, answer)
}

// Providers asks every provider process which providers it has, and how they are. The reports
// of processes that do not answer are missing; err says why.
func (c *Client) Providers(ctx context.Context) (out []providerapi.Report, err error) {
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range st.Executors {
		if e.Kind != subject.Provider {
			continue
		}
		var r providerapi.Report
		if err := c.AskService(ctx, providerapi.ServiceName, string(e.Instance), nil, &r); err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// AskService asks any replica of a service, on service.<service>.<verb>, and decodes
// the answer.
func (c *Client) AskService(ctx context.Context, service, verb string, question, answer any) error {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	res, err := c.caller.Request(ctx, subject.Service(service, verb), service, body)
	if err != nil {
		return err // it names the subject
	}
	return json.Unmarshal(res, answer)
}

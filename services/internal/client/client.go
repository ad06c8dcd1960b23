// Package client connects a user's program to a running system: it sends
// inputs, answers confirmation requests, cancels turns, and follows sessions.
package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
)

// Client publishes for one writer.
type Client struct {
	Bus    *journal.Journal
	Writer subject.Writer
	Log    *slog.Logger
	caller *bus.Caller
}

// New returns a client that uses a connection.
func New(b *journal.Journal, w subject.Writer, log *slog.Logger) (*Client, error) {
	c, err := b.NewCaller()
	if err != nil {
		return nil, fmt.Errorf("opening the reply subscription: %w", err)
	}
	return &Client{Bus: b, Writer: w, Log: log, caller: c}, nil
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

// Say stores an input and returns its sequence: from then on it ends in exactly
// one terminal event. An id is generated if it has none, so that repeating after a
// lost acknowledgement does not double it.
func (c *Client) Say(ctx context.Context, ref subject.Ref, in event.Input) (uint64, error) {
	if in.ID == "" {
		in.ID = NewID()
	}
	if err := in.Check(); err != nil {
		return 0, err
	}
	return c.store(ctx, ref, subject.Input, in.ID, in)
}

// Command stores a slash command.
func (c *Client) Command(ctx context.Context, ref subject.Ref, name string, args ...string) (uint64, error) {
	return c.Run(ctx, ref, event.Command{Name: name, Args: args})
}

// Run stores a slash command. An id is generated if it has none.
func (c *Client) Run(ctx context.Context, ref subject.Ref, cmd event.Command) (uint64, error) {
	if cmd.ID == "" {
		cmd.ID = NewID()
	}
	return c.store(ctx, ref, subject.Command, cmd.ID, cmd)
}

// Confirm answers a confirmation request, for exactly the arguments it showed.
func (c *Client) Confirm(
	ctx context.Context, ref subject.Ref, q event.ToolCallRequest, approved bool, reason string,
) error {
	_, err := c.Answer(ctx, ref, event.Confirmation{
		ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: approved, Reason: reason,
	})
	return err
}

// Answer stores an answer to a confirmation request and returns its sequence.
func (c *Client) Answer(ctx context.Context, ref subject.Ref, a event.Confirmation) (uint64, error) {
	return c.store(ctx, ref, subject.Confirmation, NewID(), a)
}

// Cancel stops the turn of the input that was acknowledged with seq.
func (c *Client) Cancel(ctx context.Context, ref subject.Ref, seq uint64, reason string) error {
	_, err := c.Stop(ctx, ref, event.Cancel{Sequence: seq, Reason: reason})
	return err
}

// Stop stores a request to end a turn and returns its sequence.
func (c *Client) Stop(ctx context.Context, ref subject.Ref, stop event.Cancel) (uint64, error) {
	return c.store(ctx, ref, subject.Cancel, NewID(), stop)
}

func (c *Client) store(
	ctx context.Context, ref subject.Ref, kind subject.CauseKind, id string, body any,
) (uint64, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	return c.Bus.PublishCause(ctx, ref, kind, c.Writer, id, b)
}

// Follow sends the session's events from now on, without gaps or repetitions.
func (c *Client) Follow(ctx context.Context, ref subject.Ref) (<-chan follow.Item, error) {
	end, err := follow.End(ctx, c.Bus, ref)
	if err != nil {
		return nil, err
	}
	return follow.Follow(ctx, c.Bus, ref, end, c.Log)
}

// FollowFrom sends the session's events from the beginning.
func (c *Client) FollowFrom(ctx context.Context, ref subject.Ref, at follow.Position) (<-chan follow.Item, error) {
	return follow.Follow(ctx, c.Bus, ref, at, c.Log)
}

// Ask asks any core replica a question about itself and decodes the answer.
func (c *Client) Ask(ctx context.Context, verb string, question, answer any) error {
	return c.AskService(ctx, coreapi.ServiceName, verb, question, answer)
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

// NewID returns a random id for an input or a command.
func NewID() string {
	var b [9]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	return hex.EncodeToString(b[:])
}

// Package client connects a user's program to a running system: it sends
// inputs, answers confirmation requests, cancels turns, and follows sessions.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
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

// Administer asks any core replica to change something, or for what only operators may see, and
// decodes the answer.
func (c *Client) Administer(ctx context.Context, verb string, question, answer any) error {
	return c.AskService(ctx, coreapi.AdminName, verb, question, answer)
}

// providersWait bounds asking one provider process.
const providersWait = 5 * time.Second

// Providers asks every provider process which providers it has, and how they are. For a
// process that does not answer, it returns what the process announced.
func (c *Client) Providers(ctx context.Context) ([]providerapi.Report, error) {
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(st.Executors, func(e executor.Announcement) bool { return e.Kind != subject.Provider })
	out := make([]providerapi.Report, len(there))
	var all sync.WaitGroup
	for i, e := range there {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, providersWait)
			defer cancel()
			if err := c.AskService(ctx, providerapi.ServiceName, string(e.Instance), nil, &out[i]); err != nil {
				c.Log.Debug("a provider process did not answer", "instance", e.Instance, "error", err)
				out[i] = announced(e)
			}
		})
	}
	all.Wait()
	return out, nil
}

func announced(e executor.Announcement) providerapi.Report {
	r := providerapi.Report{Instance: e.Instance, Providers: []providerapi.Provider{}}
	for _, p := range e.Providers {
		r.Providers = append(r.Providers, providerapi.Provider{Name: p.Name, Model: p.Model, Note: p.Note})
	}
	return r
}

// AskService asks any replica of a service, on service.<service>.<verb>, and decodes
// the answer.
func (c *Client) AskService(ctx context.Context, service, verb string, question, answer any) error {
	return ask(ctx, c.caller.Request, service, verb, question, answer)
}

// AskOrStop is like [Client.AskService], for services whose requests can be stopped: if ctx is
// cancelled, the service abandons the request.
func (c *Client) AskOrStop(ctx context.Context, service, verb string, question, answer any) error {
	return ask(ctx, c.caller.RequestOrStop, service, verb, question, answer)
}

type requester func(ctx context.Context, subj, responder string, body []byte) ([]byte, error)

func ask(ctx context.Context, request requester, service, verb string, question, answer any) error {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	res, err := request(ctx, subject.Service(service, verb), service, body)
	if err != nil {
		return err // it names the subject
	}
	return json.Unmarshal(res, answer)
}

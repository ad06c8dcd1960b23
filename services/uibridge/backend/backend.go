package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// Config configures a backend. The zero value means the defaults.
type Config struct {
	Hub      hub.Config
	Patience time.Duration // timeout for answers from the bus and core; default 10 s
}

// Deps are a backend's dependencies.
type Deps struct {
	Bus *journal.Journal
	Log *slog.Logger
	// Markdown renders the agent's text; nil: nothing is rendered. See [hub.Rendering].
	Markdown hub.Markdown
	// Approves returns nil if an answer carries an assertion of the principal's passkey for it; nil: no
	// passkeys are used.
	Approves func(contract.Principal, contract.Answer) error
}

// Backend implements contract.Backend.
type Backend struct {
	cfg    Config
	signed func(contract.Principal, contract.Answer) error
	log    *slog.Logger
	bursts *logburst.Log // for refusals
	client *client.Client
	hub    *hub.Hub
	agents agents

	mu      sync.Mutex
	methods map[string]contract.Method
}

var _ contract.Backend = (*Backend)(nil)

// writer is the writer name of the backend's own requests; it stores nothing under it.
const writer = "uibridge"

// New creates a backend on a connection; Close ends it.
func New(cfg Config, deps Deps) (*Backend, error) {
	if deps.Bus == nil || deps.Log == nil {
		return nil, errors.New("backend: Deps.Bus and Deps.Log are required")
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 10 * time.Second
	}
	c, err := client.New(deps.Bus, writer, deps.Log)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		cfg: cfg, log: deps.Log, bursts: logburst.New(deps.Log), client: c, methods: map[string]contract.Method{}, signed: deps.Approves,
		hub: hub.New(cfg.Hub, hub.Deps{Client: c, Log: deps.Log, Markdown: deps.Markdown}),
	}
	b.agents.ask = b.askAgents
	return b, nil
}

// Run waits until ctx ends, then closes.
func (b *Backend) Run(ctx context.Context) error {
	<-ctx.Done()
	b.Close()
	return nil
}

// Close ends all feeds. The connection stays open. Close may be called more than once.
func (b *Backend) Close() {
	b.hub.Close()
	if err := b.client.Close(); err != nil {
		b.log.Debug("closing the reply subscription", "error", err) // already closed, or the connection was lost
	}
}

// Client returns the client of the connection, for methods that ask core.
func (b *Backend) Client() *client.Client { return b.client }

// Stats returns the figures of the feeds.
func (b *Backend) Stats() hub.Stats { return b.hub.Stats() }

// Add makes methods callable. It panics if a name is in use, or a method lacks a right or a
// function: both are programming errors.
func (b *Backend) Add(methods ...contract.Method) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range methods {
		if _, taken := b.methods[m.Name]; taken || m.Name == "" || m.Right == "" || m.Call == nil {
			panic(fmt.Sprintf("backend: method %q exists already, or lacks a name, a right or a function", m.Name))
		}
		b.methods[m.Name] = m
	}
}

// Methods implements contract.Backend.
func (b *Backend) Methods() map[string]contract.Method {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.methods)
}

// Attach implements contract.Backend.
func (b *Backend) Attach(ctx context.Context, p contract.Principal, a contract.Attachment) (contract.Feed, error) {
	if err := p.Require(contract.See, a.Ref.Agent); err != nil {
		return nil, err
	}
	if err := b.checkRef(ctx, a.Ref); err != nil {
		return nil, err
	}
	return b.hub.Attach(ctx, a)
}

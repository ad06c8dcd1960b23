package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	sdk "skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/registry"
)

// Config configures the plugin.
type Config struct {
	// URL is plugin://NAME. Query parameters are collection=…, an id, and timeout=….
	URL    string
	Bus    *journal.Journal
	Logger *slog.Logger  // default: slog.Default()
	Grace  time.Duration // see plugincall.Grace; default 5 s
}

const (
	scheme            = "plugin://"
	defaultCollection = "memories"
	defaultTimeout    = 10 * time.Second // of one request
)

// Store is a memory.Store in a storage plugin.
type Store struct {
	name       subject.Plugin
	collection string
	timeout    time.Duration
	view       *registry.View
	asker      *plugincall.Asker
	leave      func() // closes asker

	mu     sync.RWMutex // read-locked by every call, locked to close
	closed bool

	epochs sync.Mutex
	epoch  string // of the collection, since the last call of Position; "" if it has none yet
}

var _ index.Store = (*Store)(nil)

// Open returns a store that asks the plugin when it is first used. Errors are only about the
// configuration and the connection.
func Open(cfg Config) (*Store, error) {
	s, err := parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Bus == nil {
		return nil, fmt.Errorf("%w: %s needs a connection to the bus", index.ErrInvalid, cfg.URL)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	var opts []plugincall.Option
	if cfg.Grace > 0 {
		opts = append(opts, plugincall.Grace(cfg.Grace))
	}
	s.view = registry.Open(cfg.Bus, log)
	changed := func(*registry.Snapshot) {} // every request looks
	if s.asker, s.leave, err = plugincall.Follow(cfg.Bus, s.view, changed, log, opts...); err != nil {
		s.view.Close()
		return nil, err
	}
	return s, nil
}

func parse(where string) (*Store, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: plugin URL: %s; want %sNAME?collection=ID&timeout=10s", index.ErrInvalid,
			fmt.Sprintf(format, args...), scheme)
	}
	u, err := url.Parse(where)
	if err != nil || !strings.EqualFold(u.Scheme+"://", scheme) || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, wrong("it is not %sNAME", scheme)
	}
	s := &Store{collection: defaultCollection, timeout: defaultTimeout}
	if s.name, err = subject.Parse[subject.Plugin](u.Host); err != nil {
		return nil, wrong("%.80q is not the name of a plugin", u.Host)
	}
	for name, values := range u.Query() {
		switch value := values[0]; {
		case name == "collection" && subject.Valid(value):
			s.collection = value
		case name == "timeout":
			if s.timeout, err = time.ParseDuration(value); err != nil || s.timeout <= 0 {
				return nil, wrong("timeout is %.40q", value)
			}
		default:
			return nil, wrong("parameter %.40q is unknown or has no valid value", name)
		}
	}
	return s, nil
}

// do runs one call and maps its error to the contract's.
func (s *Store) do(ctx context.Context, op string, call func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return index.ErrClosed
	}
	err := ctx.Err()
	if err == nil {
		err = call()
	}
	switch {
	case err == nil, errors.Is(err, index.ErrNotFound), errors.Is(err, index.ErrInvalid):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("memory: %s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%w: %s in storage plugin %s: %w", index.ErrUnavailable, op, s.name, err)
}

// ask sends a request to the plugin and returns the records of its answer.
func (s *Store) ask(ctx context.Context, q sdk.IndexRequest) ([]sdk.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	p, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	q.Collection = s.collection
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := s.asker.Ask(ctx, plugincall.Request{
		Plugin: s.name, Hash: p.Hash, Subject: subject.Storage(s.name, string(q.Verb)), Body: body,
		Repeatable: true, // a write that was made already is recognised by its version
	})
	if ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("no answer to %s within %v: %w", q.Verb, s.timeout, err)
	}
	if err != nil {
		return nil, err
	}
	var reply sdk.IndexReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("its answer to %s does not follow schemas/storage/index_reply.json: %w", q.Verb, err)
	}
	return reply.Records, nil
}

// registered returns the plugin, if it declares an index.
func (s *Store) registered(ctx context.Context) (*registry.Plugin, error) {
	select {
	case <-s.view.Loaded():
	case <-ctx.Done():
		return nil, errors.New("the registry of plugins cannot be read")
	}
	p := s.view.Snapshot().Get(s.name)
	if p == nil {
		return nil, errors.New("it is not registered; start it, or change SKANDHA_MEMORY_STORE")
	}
	if p.Manifest.Storage == nil || !p.Manifest.Storage.Index {
		return nil, fmt.Errorf("version %s declares no storage.index in its manifest; an index of memories needs the verbs %s",
			p.Manifest.Version, sdk.IndexVerbs())
	}
	return p, nil
}

// refused reports whether the plugin has refused what it was sent, so that sending it again
// is useless.
func refused(err error) bool {
	return errors.Is(err, bus.ErrInvalidArgument) || errors.Is(err, bus.ErrTooLarge)
}

// Ping implements memory.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func() error { _, err := s.position(ctx); return err })
}

// Wipe implements memory.Store.
func (s *Store) Wipe(ctx context.Context) error {
	return s.do(ctx, "wipe", func() error {
		_, err := s.ask(ctx, sdk.IndexRequest{Verb: sdk.Wipe})
		if err == nil {
			s.setEpoch("")
		}
		return err
	})
}

// Close implements memory.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.leave()
	s.view.Close()
	return nil
}

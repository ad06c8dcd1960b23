package chroma

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	index "skandha.dev/services/internal/memory"
)

// Store is a memory.Store in Chroma.
type Store struct {
	client *client

	mu     sync.RWMutex // read-locked by every call, locked to close
	closed bool
}

var _ index.Store = (*Store)(nil)

// Open returns a store that connects when it is first used. Errors are only about the
// configuration.
func Open(cfg Config) (*Store, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Store{client: c}, nil
}

// The distances of collections.
const (
	euclidean = "l2"
	cosine    = "cosine"
)

func (s *Store) entriesName() string { return s.client.prefix + "entries" }

func (s *Store) vectorsName(model string) string {
	sum := sha256.Sum256([]byte(model))
	return s.client.prefix + "vectors." + hex.EncodeToString(sum[:8])
}

// vectorsOf returns the collection of a model; the zero one if there is none. Its vectors
// must have the dimension.
func (s *Store) vectorsOf(ctx context.Context, model string, dimension int) (collection, error) {
	name := s.vectorsName(model)
	found, err := s.client.find(ctx, name)
	if err == nil && found.Dimension > 0 && found.Dimension != dimension {
		s.client.forget() // another process may have wiped the store
		found, err = s.client.find(ctx, name)
	}
	if err == nil && found.Dimension > 0 && found.Dimension != dimension {
		return collection{}, index.WrongDimension(model, dimension, found.Dimension)
	}
	return found, err
}

// keyOf names a memory in letters that every condition can hold.
func keyOf(key index.Key) string {
	sum := sha256.Sum256([]byte(string(key.Agent) + "/" + key.ID)) // an agent has no slash
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// recordOf names a revision of a memory.
func recordOf(key string, revision uint64) string { return fmt.Sprintf("%s:%d", key, revision) }

// do runs one call and maps its error to the contract's. A call that finds that a
// collection is not there any more is repeated, because another process may have wiped it.
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
	if missing(err) {
		s.client.forget()
		err = call()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, index.ErrNotFound), errors.Is(err, index.ErrInvalid):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("memory: %s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%w: %s in chroma at %s: %w", index.ErrUnavailable, op, s.client.where, err)
}

// Ping implements memory.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "ping", func() error {
		return s.client.call(ctx, http.MethodGet, s.client.root+"/heartbeat", nil, nil)
	})
}

// Close implements memory.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.client.http.CloseIdleConnections()
	return nil
}

// positionRecord is the record that holds the position, in its revision.
const positionRecord = "position"

// SetPosition implements memory.Store. Of two processes that set it at once, the one with
// the smaller revision may win: then the index is filled from there again.
func (s *Store) SetPosition(ctx context.Context, revision uint64) error {
	if err := index.CheckPosition(revision); err != nil {
		return err
	}
	return s.do(ctx, "set position", func() error {
		entries, err := s.client.make(ctx, s.entriesName(), euclidean)
		if err != nil {
			return err
		}
		at, err := s.positionIn(ctx, entries)
		if err != nil || at >= revision {
			return err
		}
		return s.client.do(ctx, entries, "upsert", map[string]any{
			"ids": []string{positionRecord}, "embeddings": [][]float32{{0}}, "documents": []string{""},
			"metadatas": []metadata{{Key: positionRecord, Revision: revision}},
		}, nil)
	})
}

// Position implements memory.Store. It is lost together with the entries.
func (s *Store) Position(ctx context.Context) (revision uint64, err error) {
	err = s.do(ctx, "position", func() error {
		entries, err := s.client.find(ctx, s.entriesName())
		if err != nil || entries.ID == "" {
			revision = 0
			return err
		}
		revision, err = s.positionIn(ctx, entries)
		return err
	})
	return revision, err
}

func (s *Store) positionIn(ctx context.Context, entries collection) (uint64, error) {
	var found records
	if err := s.client.do(ctx, entries, "get", map[string]any{
		"ids": []string{positionRecord}, "include": []string{"metadatas"},
	}, &found); err != nil || len(found.Metadatas) == 0 {
		return 0, err
	}
	return found.Metadatas[0].Revision, nil
}

// Wipe implements memory.Store. The entries go first, and the position with them.
func (s *Store) Wipe(ctx context.Context) error {
	return s.do(ctx, "wipe", func() error {
		all, err := s.client.list(ctx)
		if err != nil {
			return err
		}
		for _, name := range append([]string{s.entriesName()}, s.vectorNames(all)...) {
			err := s.client.call(ctx, http.MethodDelete, s.client.base+"/"+name, nil, nil)
			if err != nil && !missing(err) {
				return err
			}
		}
		s.client.forget()
		return nil
	})
}

// vectorNames returns which of the collections hold vectors of this store.
func (s *Store) vectorNames(all []collection) (names []string) {
	for _, c := range all {
		hash, is := strings.CutPrefix(c.Name, s.client.prefix+"vectors.")
		if _, err := hex.DecodeString(hash); is && err == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

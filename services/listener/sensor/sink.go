package sensor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/feed"
	"skandha.dev/services/listener/mapping"
)

// storeWait bounds one access to the bucket.
const storeWait = 5 * time.Second

// sink takes the readings of a source, and keeps its position.
type sink struct {
	rule   string
	feed   *feed.Feed
	now    func() time.Time
	stats  *feed.Stats
	health *contract.Condition

	bucket   *journal.Bucket
	key      string
	revision uint64
}

// ok says that the source can be read.
func (s *sink) ok() { s.health.Set(contract.StateOK, "") }

// deliver takes readings and returns when everything that follows from them is durable.
func (s *sink) deliver(ctx context.Context, readings []mapping.Reading) error {
	var all sync.WaitGroup
	for _, r := range readings {
		r.Time = s.now()
		all.Add(1)
		if err := s.feed.Put(ctx, feed.Item{Rules: []string{s.rule}, Reading: r, Done: all.Done}); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load reads the position; false if there is none.
func (s *sink) load(ctx context.Context, position any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	e, err := s.bucket.Get(ctx, s.key)
	if errors.Is(err, bus.ErrNotFound) {
		s.revision = 0
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the position: %w", err)
	}
	s.revision = e.Revision
	if err := json.Unmarshal(e.Value, position); err != nil {
		return false, fmt.Errorf("reading the position: %w; delete key %s of bucket %s", err, s.key, journal.BucketListeners)
	}
	return true, nil
}

// save stores the position. It fails if another process has stored one.
func (s *sink) save(ctx context.Context, position any) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	body, err := json.Marshal(position)
	if err != nil {
		return err
	}
	rev, err := s.bucket.Put(ctx, s.key, body, journal.Fence{Revision: s.revision})
	if err != nil {
		return fmt.Errorf("storing the position: %w", err)
	}
	s.revision = rev
	return nil
}

// id derives the id of a reading from what it is.
func id(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendln(nil, parts...))
	return hex.EncodeToString(sum[:8])
}

package cron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// store holds the positions of one listener's entries.
type store struct {
	listener subject.Writer
	bucket   *journal.Bucket
}

// position is how far an entry has got.
type position struct {
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone"`
	Last     time.Time `json:"last"` // the last occurrence that was emitted or skipped

	revision uint64 // of what is stored, which may be that it was removed
}

func (s *store) key(entry string) string { return s.prefix() + subject.Encode(entry) }

func (s *store) prefix() string { return string(s.listener) + "." }

// load reads the entry's position; false if there is none.
func (s *store) load(ctx context.Context, entry string) (p position, known bool, err error) {
	for e, err := range s.bucket.Matching(ctx, s.key(entry)) {
		if err != nil {
			return p, false, err
		}
		if p, known, err = parse(e); err != nil {
			return p, false, err
		}
	}
	return p, known, nil
}

func parse(e journal.Entry) (p position, known bool, err error) {
	if !e.Deleted {
		if err := json.Unmarshal(e.Value, &p); err != nil {
			return p, false, fmt.Errorf("reading a position: %w; delete key %s of bucket %s", err, e.Key, journal.BucketCron)
		}
	}
	p.revision = e.Revision
	return p, !e.Deleted, nil
}

// save records the entry's position. It reports false if another replica has
// recorded one since p was loaded; then load again.
func (s *store) save(ctx context.Context, entry string, p *position) (bool, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	rev, err := s.bucket.Put(ctx, s.key(entry), body, journal.Fence{Revision: p.revision})
	if errors.Is(err, bus.ErrFenceLost) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("recording the position of entry %s: %w", entry, err)
	}
	p.revision = rev
	return true, nil
}

// entries lists the positions that are stored, by entry.
func (s *store) entries(ctx context.Context) (map[string]position, error) {
	out := map[string]position{}
	for e, err := range s.bucket.Matching(ctx, s.prefix()+"*") {
		if err != nil {
			return nil, fmt.Errorf("listing the stored entries: %w", err)
		}
		entry, err := subject.Decode(strings.TrimPrefix(e.Key, s.prefix()))
		if err != nil || e.Deleted {
			continue
		}
		out[entry] = position{revision: e.Revision}
	}
	return out, nil
}

// remove deletes the position of an entry, unless another replica has just recorded one.
func (s *store) remove(ctx context.Context, entry string, p position) error {
	_, err := s.bucket.Delete(ctx, s.key(entry), journal.Fence{Revision: p.revision})
	if err != nil && !errors.Is(err, bus.ErrFenceLost) {
		return fmt.Errorf("removing entry %s: %w", entry, err)
	}
	return nil
}

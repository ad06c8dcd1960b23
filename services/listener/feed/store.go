package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// store keeps the state of a listener's rules.
type store struct {
	bucket    *journal.Bucket
	prefix    string
	revisions map[string]uint64
}

func newStore(b *journal.Bucket, listener subject.Writer) *store {
	return &store{b, "state." + string(listener) + ".", map[string]uint64{}}
}

// load calls f for each state that is stored.
func (s *store) load(ctx context.Context, f func(rule string, state []byte)) error {
	clear(s.revisions)
	for e, err := range s.bucket.Matching(ctx, s.prefix+">") {
		if err != nil {
			return err
		}
		s.revisions[e.Key] = e.Revision
		rule, _, _ := strings.Cut(strings.TrimPrefix(e.Key, s.prefix), ".")
		if rule, err = subject.Decode(rule); err != nil || e.Deleted {
			continue
		}
		f(rule, e.Value)
	}
	return nil
}

// save stores the state of a name. It fails if another process has stored one since.
func (s *store) save(ctx context.Context, rule, name string, state []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	sum := sha256.Sum256([]byte(name))
	key := s.prefix + subject.Encode(rule) + "." + hex.EncodeToString(sum[:16])
	rev, err := s.bucket.Put(ctx, key, state, journal.Fence{Revision: s.revisions[key]})
	if err != nil {
		return fmt.Errorf("storing the state of rule %s: %w", rule, err)
	}
	s.revisions[key] = rev
	return nil
}

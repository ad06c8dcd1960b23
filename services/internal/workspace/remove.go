package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// Forget removes packs of the session to which no head refers, if they were stored before the head with that
// revision; 0: at any time.
func (s *Store) Forget(ctx context.Context, ref subject.Ref, revision uint64, names []string) error {
	for _, name := range names {
		if err := s.bucket.Purge(ctx, key(ref, name), revision); err != nil {
			return err
		}
	}
	return nil
}

// Stored returns the names of all stored packs of a session.
func (s *Store) Stored(ctx context.Context, ref subject.Ref) ([]string, error) {
	keys, err := s.bucket.Keys(ctx, key(ref, "*"))
	if err != nil {
		return nil, err
	}
	names := keys[:0]
	for _, k := range keys {
		if name := strings.TrimPrefix(k, key(ref, "")); name != headPart {
			names = append(names, name)
		}
	}
	return names, nil
}

// Delete removes what the bucket of a bus has of a session. A sandbox that still runs stores its files again
// after the session's next call, and not before.
func Delete(ctx context.Context, j *journal.Journal, ref subject.Ref) error {
	return remove(ctx, j.BulkBucket(journal.BucketFiles), ref, func(journal.Entry) bool { return true })
}

// DeleteBefore is Delete unless the snapshot is of that turn or a later one.
func (s *Store) DeleteBefore(ctx context.Context, ref subject.Ref, turn uint64) error {
	return remove(ctx, s.bucket, ref, func(e journal.Entry) bool {
		if e.Revision == 0 || e.Deleted {
			return false
		}
		h, err := headOf(ref, e)
		return err != nil || h.Turn < turn
	})
}

// attempts bounds how often a change of a head that another writer overtakes is tried.
const attempts = 5

// remove removes a session's snapshot if it has one that is doomed. A marker remains in place of the head, so that
// a writer which is about to commit notices.
func remove(ctx context.Context, bucket *journal.Bucket, ref subject.Ref, doomed func(journal.Entry) bool) error {
	var lost error
	for range attempts {
		head, err := bucket.Last(ctx, key(ref, headPart))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return err
		}
		if !doomed(head) {
			return nil
		}
		marker, err := bucket.Delete(ctx, key(ref, headPart), journal.Fence{Revision: head.Revision})
		switch err = full(err); {
		case errors.Is(err, bus.ErrFenceLost):
			lost = err
			continue
		case errors.Is(err, ErrFull): // not even for the marker: a purge needs no room
			return bucket.Purge(ctx, key(ref, "*"), 0)
		case err != nil:
			return fmt.Errorf("deleting the files of session %s: %w", ref.Session, err)
		}
		if marker == 1 { // nothing was there
			return nil
		}
		return bucket.Purge(ctx, key(ref, "*"), marker-1)
	}
	return fmt.Errorf("deleting the files of session %s: %w", ref.Session, lost)
}

// settled is how old the last change of a session without a head must be: its writer may be about to commit.
const settled = time.Hour

// Expire removes the snapshots that were last stored longer than age ago, and what was left of others. It
// returns how many sessions it has removed.
func (s *Store) Expire(ctx context.Context, age time.Duration) (removed int, err error) {
	now, err := s.bucket.Now(ctx)
	if err != nil {
		return 0, err
	}
	living := map[string]bool{}
	for e, err := range s.bucket.Matching(ctx, "*.*."+headPart) {
		if err != nil {
			return removed, err
		}
		ref, prefix := refOf(e.Key)
		living[prefix] = !e.Deleted
		if e.Deleted || now.Sub(e.Time) <= age {
			continue
		}
		err := remove(ctx, s.bucket, ref, func(at journal.Entry) bool { return at.Revision == e.Revision })
		if err != nil {
			return removed, err
		}
		removed++
	}
	return removed, s.sweep(ctx, now, living)
}

// sweep removes what sessions without a head have: markers of deletions, and packs of writers that died.
func (s *Store) sweep(ctx context.Context, now time.Time, living map[string]bool) error {
	keys, err := s.bucket.Keys(ctx, "*.*.*")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, k := range keys {
		ref, prefix := refOf(k)
		if living[prefix] || seen[prefix] {
			continue
		}
		seen[prefix] = true
		last, err := s.bucket.Last(ctx, key(ref, "*"))
		if errors.Is(err, bus.ErrNotFound) || err == nil && now.Sub(last.Time) <= settled {
			continue
		}
		if err == nil {
			err = s.bucket.Purge(ctx, key(ref, "*"), last.Revision)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refOf returns the session in a key, and the part of the key that names it.
func refOf(k string) (ref subject.Ref, prefix string) {
	t := strings.SplitN(k, ".", 3)
	return subject.Ref{Agent: subject.Agent(t[0]), Session: subject.Session(t[1])}, t[0] + "." + t[1]
}

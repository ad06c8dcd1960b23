package cron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/journal"
)

// Bucket holds the last occurrences.
const Bucket = "cron"

const callWait = 5 * time.Second

// store holds the state of one listener's entries.
type store struct {
	listener subject.Writer
	clock    *clock.Clock
	bucket   jetstream.KeyValue
}

// position is how far an entry has got.
type position struct {
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone"`
	Last     time.Time `json:"last"` // the last occurrence that was emitted or skipped

	revision uint64
}

// plan is the body of a schedule: what is due.
type plan struct {
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone"`
	At       time.Time `json:"at"`
}

// openStore creates the stream, bucket and consumer if they are missing.
func openStore(ctx context.Context, b *journal.Journal, listener subject.Writer, log *slog.Logger) (*store, error) {
	c, err := clock.Open(ctx, b, listener, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	s := &store{listener: listener, clock: c}
	return s, s.openBucket(ctx, b.JetStream(), c.Replicas())
}

func (s *store) openBucket(ctx context.Context, js jetstream.JetStream, replicas int) (err error) {
	s.bucket, err = js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: Bucket, Description: "last occurrence of each entry of cron listeners", Storage: jetstream.FileStorage,
			Replicas: replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			s.bucket, err = js.KeyValue(ctx, Bucket)
		}
	}
	if err != nil {
		return fmt.Errorf("opening bucket %s: %w", Bucket, err)
	}
	return nil
}

func (s *store) key(entry string) string { return string(s.listener) + "." + subject.Encode(entry) }

// load reads the entry's position; false if there is none.
func (s *store) load(ctx context.Context, entry string) (position, bool, error) {
	kv, err := s.bucket.Get(ctx, s.key(entry))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return position{}, false, nil
	}
	if err != nil {
		return position{}, false, fmt.Errorf("reading the position of entry %s: %w", entry, err)
	}
	var p position
	if err := json.Unmarshal(kv.Value(), &p); err != nil {
		return position{}, false, fmt.Errorf("reading the position of entry %s: %w; delete key %s of bucket %s", entry, err,
			s.key(entry), Bucket)
	}
	p.revision = kv.Revision()
	return p, true, nil
}

// save records the entry's position. It reports false if another replica has
// recorded one since p was loaded; then load again.
func (s *store) save(ctx context.Context, entry string, p *position) (bool, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	var rev uint64
	if p.revision == 0 {
		rev, err = s.bucket.Create(ctx, s.key(entry), body)
	} else {
		rev, err = s.bucket.Update(ctx, s.key(entry), body, p.revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("recording the position of entry %s: %w", entry, err)
	}
	p.revision = rev
	return true, nil
}

// lay stores the schedule of the entry's next occurrence, unless it is stored already.
func (s *store) lay(ctx context.Context, entry string, p plan) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return s.clock.Lay(ctx, entry, p.At, body)
}

// entries lists the entries that have a position.
func (s *store) entries(ctx context.Context) ([]string, error) {
	prefix := string(s.listener) + "."
	keys, err := s.bucket.ListKeysFiltered(ctx, prefix+"*")
	if err != nil {
		return nil, fmt.Errorf("listing the stored entries: %w", err)
	}
	var out []string
	for k := range keys.Keys() {
		if entry, err := subject.Decode(strings.TrimPrefix(k, prefix)); err == nil {
			out = append(out, entry)
		}
	}
	return out, nil // read to its end, the lister has stopped
}

// remove deletes an entry: its schedule, its due occurrences and its position.
func (s *store) remove(ctx context.Context, entry string) error {
	if err := s.clock.Remove(ctx, entry); err != nil {
		return err
	}
	if err := s.bucket.Purge(ctx, s.key(entry)); err != nil {
		return fmt.Errorf("removing entry %s: %w", entry, err)
	}
	return nil
}

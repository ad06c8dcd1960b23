package cron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// The stream of the schedules, and the bucket of the last occurrences.
const (
	Stream = "CRON"
	Bucket = "cron"
)

const (
	ackWait  = 30 * time.Second
	callWait = 5 * time.Second
)

// store holds the state of one listener's entries.
type store struct {
	listener subject.Writer
	js       jetstream.JetStream
	stream   jetstream.Stream
	bucket   jetstream.KeyValue
	consumer jetstream.Consumer
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
func openStore(ctx context.Context, b *journal.Journal, listener subject.Writer) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	s := &store{listener: listener, js: b.JetStream()}
	sessions, err := s.js.Stream(ctx, bus.StreamSessions)
	if err != nil {
		return nil, fmt.Errorf("looking up stream %s: %w", bus.StreamSessions, err)
	}
	replicas := sessions.CachedInfo().Config.Replicas
	if err := s.openStream(ctx, replicas); err != nil {
		return nil, err
	}
	if err := s.openBucket(ctx, replicas); err != nil {
		return nil, err
	}
	s.consumer, err = s.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: string(listener), FilterSubject: occurrences(listener),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("creating consumer %s of stream %s: %w", listener, Stream, err)
	}
	return s, nil
}

func (s *store) openStream(ctx context.Context, replicas int) (err error) {
	s.stream, err = s.js.Stream(ctx, Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.stream, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: Stream, Description: "schedules of cron listeners' entries, and due occurrences until they are handled",
			Subjects: []string{allSchedules, allOccurrences},
			// As stream TIMERS: handled messages are removed; a schedule has no consumer and stays.
			Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
			MaxBytes: -1, Replicas: replicas, AllowMsgSchedules: true, AllowRollup: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster
			s.stream, err = s.js.Stream(ctx, Stream)
		}
	}
	if err != nil {
		return fmt.Errorf("opening stream %s: %w", Stream, err)
	}
	if c := s.stream.CachedInfo().Config; !c.AllowMsgSchedules || c.Retention != jetstream.WorkQueuePolicy {
		return fmt.Errorf("stream %s is not a work queue with message schedules, "+
			"so Skandha did not create it; remove it by hand", Stream)
	}
	return nil
}

func (s *store) openBucket(ctx context.Context, replicas int) (err error) {
	s.bucket, err = s.js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.bucket, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: Bucket, Description: "last occurrence of each entry of cron listeners", Storage: jetstream.FileStorage,
			Replicas: replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			s.bucket, err = s.js.KeyValue(ctx, Bucket)
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
	subj := scheduleSubject(s.listener, entry)
	if m, err := s.stream.GetLastMsgForSubject(ctx, subj); err == nil && string(m.Data) == string(body) {
		return nil
	}
	_, err = s.js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: body, Header: nats.Header{
		jetstream.ScheduleHeader:       {"@at " + p.At.UTC().Format(time.RFC3339)},
		jetstream.ScheduleTargetHeader: {occurredSubject(s.listener, entry)},
		jetstream.ExpectedStreamHeader: {Stream},
	}})
	if err != nil {
		return fmt.Errorf("storing the schedule of entry %s: %w", entry, err)
	}
	return nil
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
	for _, subj := range []string{scheduleSubject(s.listener, entry), occurredSubject(s.listener, entry)} {
		if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(subj)); err != nil {
			return fmt.Errorf("removing entry %s: %w", entry, err)
		}
	}
	if err := s.bucket.Purge(ctx, s.key(entry)); err != nil {
		return fmt.Errorf("removing entry %s: %w", entry, err)
	}
	return nil
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// Bucket is a key-value bucket: the last value of each key, in a stream that orders all
// changes. It is compatible with the key-value API of any NATS client.
type Bucket struct {
	j    *Journal
	name string
	bulk bool
}

// Bucket returns the bucket with the name, which need not exist yet.
func (j *Journal) Bucket(name string) *Bucket { return &Bucket{j, name, false} }

// BulkBucket returns a bucket whose values are large: they travel over the connection for bodies, so that
// small messages do not wait for them.
func (j *Journal) BulkBucket(name string) *Bucket { return &Bucket{j, name, true} }

func (k *Bucket) link() *bus.Link {
	if k.bulk {
		return k.j.data
	}
	return k.j.ctl
}

func bucketStream(name string) string { return "KV_" + name }

// Entry is the value of a key in a bucket.
type Entry struct {
	Key      string
	Revision uint64 // sequence of the change, increasing over the whole bucket
	Time     time.Time
	Value    []byte
	// Deleted means that there is no value: the key was deleted, or the server has replaced it by its answer to
	// somebody (see [IsNoise]).
	Deleted bool
}

// Fence is the condition of a change: it is refused with [bus.ErrFenceLost] if the last change of
// the keys that match Filter has another revision.
type Fence struct {
	Filter   string // a key, which may contain wildcards; empty: the key that is changed
	Revision uint64 // 0: none of them has ever been changed
}

// operation is the header that distinguishes a deletion from an empty value.
const operation, operationDelete = "KV-Operation", "DEL"

// one reports whether a key is exactly one, and no pattern: a caller may have it from a person.
func one(key string) error {
	for token := range strings.SplitSeq(key, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsAny(token, " \t\r\n") {
			return bus.Errorf(bus.CodeInvalidArgument, "%q is not the name of one key", key)
		}
	}
	return nil
}

// Get reads a key's value from the stream's leader, so it sees every change that was
// acknowledged before. The error is [bus.ErrNotFound] if there is no value.
func (k *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	if err := one(key); err != nil {
		return Entry{}, err
	}
	m, err := k.link().Stored(ctx, bucketStream(k.name), bus.Query{LastFor: subject.BucketKey(k.name, key)})
	if err == nil {
		e := k.entry(m)
		if !e.Deleted {
			return e, nil
		}
		err = bus.ErrNotFound
	}
	return Entry{}, fmt.Errorf("reading %s of bucket %s: %w", key, k.name, k.missing(err))
}

// Last returns the last change of the keys that match a filter, which may be a deletion. The error is
// [bus.ErrNotFound] if there is none.
func (k *Bucket) Last(ctx context.Context, filter string) (Entry, error) {
	m, err := k.link().Stored(ctx, bucketStream(k.name), bus.Query{LastFor: subject.BucketKey(k.name, filter)})
	if err != nil {
		return Entry{}, fmt.Errorf("reading the last change of %s of bucket %s: %w", filter, k.name, k.missing(err))
	}
	return k.entry(m), nil
}

// Revision returns the revision of the last change of any key, 0 if there is none. A watch
// that has received this revision has received everything that was acknowledged before the
// call.
func (k *Bucket) Revision(ctx context.Context) (uint64, error) {
	e, err := k.Last(ctx, ">")
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return 0, err
	}
	return e.Revision, nil
}

// Now returns the time by the clock of the server that stamps the entries, so that their age does not
// depend on the clock of this host.
func (k *Bucket) Now(ctx context.Context) (time.Time, error) {
	s, err := k.j.JetStream().Stream(ctx, bucketStream(k.name))
	if err != nil {
		return time.Time{}, bus.TransportError("asking for the time of bucket "+k.name, k.missing(err))
	}
	if now := s.CachedInfo().TimeStamp; !now.IsZero() {
		return now, nil
	}
	return time.Now(), nil // a server before 2.10
}

// Restored returns when the bucket was restored from a backup; zero if never.
func (k *Bucket) Restored(ctx context.Context) (at time.Time, err error) {
	s, err := k.j.JetStream().Stream(ctx, bucketStream(k.name))
	if err != nil {
		return at, bus.TransportError("looking up bucket "+k.name, k.missing(err))
	}
	if text := s.CachedInfo().Config.Metadata[MetaRestored]; text != "" {
		if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return at, fmt.Errorf("bucket %s: metadata %s: %w", k.name, MetaRestored, err)
		}
	}
	return at, nil
}

// missing marks the error of a bucket that does not exist as temporary.
func (k *Bucket) missing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %w", bus.Errorf(bus.CodeUnavailable, "the bucket does not exist yet"), err)
	}
	return err
}

func (k *Bucket) entry(m bus.StoredMsg) Entry {
	return Entry{
		Key: strings.TrimPrefix(m.Subject, subject.BucketKey(k.name, "")), Revision: m.Seq, Time: m.Time, Value: m.Data,
		Deleted: m.Header.Get(operation) != "" || bus.IsAnswer(m.Header, m.Data),
	}
}

// Put stores a value under a key if the fence holds, and returns the revision. The errors are
// those of [Journal.AppendCommit].
func (k *Bucket) Put(ctx context.Context, key string, value []byte, f Fence) (uint64, error) {
	if err := one(key); err != nil {
		return 0, err
	}
	return k.store(ctx, &nats.Msg{Subject: subject.BucketKey(k.name, key), Data: value, Header: nats.Header{}}, f)
}

// Delete deletes a key if the fence holds, and returns the revision of the deletion.
func (k *Bucket) Delete(ctx context.Context, key string, f Fence) (uint64, error) {
	if err := one(key); err != nil {
		return 0, err
	}
	h := nats.Header{operation: []string{operationDelete}}
	return k.store(ctx, &nats.Msg{Subject: subject.BucketKey(k.name, key), Header: h}, f)
}

func (k *Bucket) store(ctx context.Context, m *nats.Msg, f Fence) (uint64, error) {
	if k.name == BucketPlugins {
		m.Header[jetstream.MsgRollup] = []string{jetstream.MsgRollupSubject}
	}
	m.Header[jetstream.ExpectedStreamHeader] = []string{bucketStream(k.name)}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(f.Revision, 10)}
	if f.Filter != "" {
		m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{subject.BucketKey(k.name, f.Filter)}
	}
	return k.link().Store(ctx, m).Wait(ctx)
}

// Forget removes the remaining changes of a deleted key, up to a revision. Watches are not
// notified. The last change that a [Fence] refers to must remain, or that fence would accept
// an earlier revision. Only the bucket of plugins can forget.
func (k *Bucket) Forget(ctx context.Context, key string, upTo uint64) error {
	if err := one(key); err != nil {
		return err
	}
	if k.name != BucketPlugins {
		return bus.Errorf(bus.CodeInvalidArgument, "bucket %s forgets nothing", k.name)
	}
	s, err := k.j.JetStream().Stream(ctx, bucketStream(k.name))
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject.BucketKey(k.name, key)), jetstream.WithPurgeSequence(upTo+1))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return bus.TransportError("forgetting "+key+" of bucket "+k.name, err)
	}
	return nil
}

// Purge removes every key that matches a filter, if its last change has at most that revision; 0: whatever
// it has. Nothing remains of it, so a [Fence] with revision 0 holds for it afterwards. Watches are not notified.
func (k *Bucket) Purge(ctx context.Context, filter string, upTo uint64) error {
	s, err := k.j.JetStream().Stream(ctx, bucketStream(k.name))
	if err == nil {
		opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject.BucketKey(k.name, filter))}
		if upTo > 0 {
			opts = append(opts, jetstream.WithPurgeSequence(upTo+1))
		}
		err = s.Purge(ctx, opts...)
	}
	if err != nil {
		return bus.TransportError("removing "+filter+" of bucket "+k.name, k.missing(err))
	}
	return nil
}

// Keys returns the keys that match a filter, in no order. Values are not read.
func (k *Bucket) Keys(ctx context.Context, filter string) ([]string, error) {
	s, err := k.j.JetStream().Stream(ctx, bucketStream(k.name))
	if err != nil {
		return nil, bus.TransportError("listing bucket "+k.name, k.missing(err))
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject.BucketKey(k.name, filter)))
	if err != nil {
		return nil, bus.TransportError("listing bucket "+k.name, k.missing(err))
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for s := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(s, subject.BucketKey(k.name, "")))
	}
	return keys, nil
}

// After yields the last change of each key that was changed after a revision, in the order of
// revisions, deletions included: all that were stored when it was called, and possibly later
// ones. An error ends the iteration.
func (k *Bucket) After(ctx context.Context, revision uint64) iter.Seq2[Entry, error] {
	return k.matching(ctx, ">", revision, 0)
}

// Matching yields the last change of each key that matches a filter, as [Bucket.After] does.
func (k *Bucket) Matching(ctx context.Context, filter string) iter.Seq2[Entry, error] {
	return k.matching(ctx, filter, 0, 0)
}

// matching yields what changed after a revision: at least up to another one, which was stored; 0: up to the
// last one.
func (k *Bucket) matching(ctx context.Context, filter string, revision, upTo uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for m, err := range k.link().Messages(ctx, bus.Range{
			Stream: bucketStream(k.name), Filter: subject.BucketKey(k.name, filter), After: revision, Copies: true, UpTo: upTo,
		}) {
			if err != nil {
				yield(Entry{}, fmt.Errorf("reading bucket %s: %w", k.name, k.missing(err)))
				return
			}
			if !yield(k.entry(m), nil) {
				return
			}
		}
	}
}

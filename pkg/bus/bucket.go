package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// Bucket is a key-value bucket: the last value of each key, in a stream that
// orders all changes. It is that of any NATS client's key-value API.
type Bucket struct {
	b    *Bus
	name string
}

// Bucket returns the bucket of the name, which need not be there yet.
func (b *Bus) Bucket(name string) *Bucket { return &Bucket{b, name} }

func bucketStream(name string) string { return "KV_" + name }

// Entry is what a bucket holds under a key.
type Entry struct {
	Key      string
	Revision uint64 // sequence of the change; grows over the whole bucket
	Time     time.Time
	Value    []byte
	Deleted  bool // the key was deleted; there is no value
}

// Fence is what a change is made for: it is refused with [ErrFenceLost] when the
// last change of the keys that Filter matches has another revision.
type Fence struct {
	Filter   string // a key, perhaps with wildcards; empty: the key that is changed
	Revision uint64 // 0: none of them has ever been changed
}

// operation is the header by which a deletion is told from an empty value.
const operation, operationDelete = "KV-Operation", "DEL"

// Get reads a key's value from the stream's leader: everything that was
// acknowledged before is seen. The error is [ErrNotFound] when there is none.
func (k *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	m, err := k.b.getStored(ctx, k.b.ctl, bucketStream(k.name), getRequest{LastFor: subject.BucketKey(k.name, key)})
	if err == nil {
		e := k.entry(m)
		if !e.Deleted {
			return e, nil
		}
		err = ErrNotFound
	}
	return Entry{}, fmt.Errorf("reading %s of bucket %s: %w", key, k.name, k.missing(err))
}

// Revision is that of the last change of any key that is still remembered, 0 when
// there is none. A watch that has come so far has seen all that was acknowledged
// before the call.
func (k *Bucket) Revision(ctx context.Context) (uint64, error) {
	m, err := k.b.getStored(ctx, k.b.ctl, bucketStream(k.name), getRequest{LastFor: subject.BucketKey(k.name, ">")})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("reading the last revision of bucket %s: %w", k.name, k.missing(err))
	}
	return m.Seq, nil
}

// missing says of a bucket that is not there that it may be soon.
func (k *Bucket) missing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %w", Errorf(CodeUnavailable, "there is no such bucket yet"), err)
	}
	return err
}

func (k *Bucket) entry(m StoredMsg) Entry {
	return Entry{
		Key: strings.TrimPrefix(m.Subject, subject.BucketKey(k.name, "")), Revision: m.Seq, Time: m.Time, Value: m.Data,
		Deleted: m.Header.Get(operation) != "",
	}
}

// Put stores a value under a key if the fence holds, and returns the revision.
// Errors are those of [Bus.AppendCommit].
func (k *Bucket) Put(ctx context.Context, key string, value []byte, f Fence) (uint64, error) {
	return k.store(ctx, &nats.Msg{Subject: subject.BucketKey(k.name, key), Data: value, Header: nats.Header{}}, f)
}

// Delete deletes a key if the fence holds, and returns the revision of that.
func (k *Bucket) Delete(ctx context.Context, key string, f Fence) (uint64, error) {
	h := nats.Header{operation: []string{operationDelete}}
	return k.store(ctx, &nats.Msg{Subject: subject.BucketKey(k.name, key), Header: h}, f)
}

func (k *Bucket) store(ctx context.Context, m *nats.Msg, f Fence) (uint64, error) {
	m.Header[jetstream.ExpectedStreamHeader] = []string{bucketStream(k.name)}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(f.Revision, 10)}
	if f.Filter != "" {
		m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{subject.BucketKey(k.name, f.Filter)}
	}
	return k.b.store(ctx, k.b.ctl, m).Wait(ctx)
}

// Forget removes what is left of a deleted key: its changes up to a revision.
// Nobody who watches is told. The last change of all that a [Fence] looks at must
// stay, or that fence would go back in time.
func (k *Bucket) Forget(ctx context.Context, key string, upTo uint64) error {
	s, err := k.b.js.Stream(ctx, bucketStream(k.name))
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject.BucketKey(k.name, key)), jetstream.WithPurgeSequence(upTo+1))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return transportError("forgetting "+key+" of bucket "+k.name, err)
	}
	return nil
}

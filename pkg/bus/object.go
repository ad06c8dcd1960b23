package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A body is stored as any client of NATS stores an object, in chunks and an entry about it. It is read by
// direct get: the client's Get creates a consumer, and a client that may create one on a stream can have the
// server deliver what the stream holds to any subject.

// ObjectStream returns the name of the stream of a bucket of bodies.
func ObjectStream(bucket string) string { return "OBJ_" + bucket }

// ObjectEntry returns the subject of the entry about a body.
func ObjectEntry(bucket, name string) string {
	return "$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

// ObjectStore looks a bucket up once; the handle remains valid after a reconnect. Its Get, List and Watch need
// a consumer, which only core may create: use [Bus.GetObject] and [Bus.Objects].
func (b *Bus) ObjectStore(ctx context.Context, name string) (jetstream.ObjectStore, error) {
	b.mu.Lock()
	store := b.buckets[name]
	b.mu.Unlock()
	if store != nil {
		return store, nil
	}
	store, err := b.data.js.ObjectStore(ctx, name)
	if err == nil {
		b.mu.Lock()
		b.buckets[name] = store
		b.mu.Unlock()
	}
	return store, err
}

// PutObject stores a body of at most [MaxClaimBytes] in a bucket.
func (b *Bus) PutObject(ctx context.Context, bucket, name string, data []byte) error {
	if len(data) > MaxClaimBytes {
		return Errorf(CodeTooLarge, "storing %s in %s: %d bytes, at most %d", name, bucket, len(data), MaxClaimBytes)
	}
	ctx, cancel := Bounded(ctx)
	defer cancel()
	store, err := b.ObjectStore(ctx, bucket)
	if err == nil {
		_, err = store.PutBytes(ctx, name, data)
	}
	if err != nil {
		return TransportError("storing "+name+" in "+bucket, err)
	}
	return nil
}

// GetObject fetches a body of at most [MaxClaimBytes] from a bucket, and checks it against the digest of its
// entry.
func (b *Bus) GetObject(ctx context.Context, bucket, name string) ([]byte, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	doing := "fetching " + name + " from " + bucket
	info, err := b.objectInfo(ctx, bucket, name)
	if err != nil {
		return nil, TransportError(doing, err)
	}
	if info.Size > MaxClaimBytes {
		return nil, Errorf(CodeTooLarge, "%s: %d bytes, at most %d", doing, info.Size, MaxClaimBytes)
	}
	data, err := b.chunks(ctx, bucket, info)
	if err != nil {
		return nil, TransportError(doing, err)
	}
	if err := checkDigest(info, data); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return data, nil
}

// chunks reads a body. Chunks are never changed, so the first ones that there are of it are those of its
// entry.
func (b *Bus) chunks(ctx context.Context, bucket string, info *jetstream.ObjectInfo) ([]byte, error) {
	data, n := make([]byte, 0, info.Size), uint32(0)
	if info.Chunks == 0 {
		return data, nil
	}
	for m, err := range b.data.Messages(ctx, Range{
		Stream: ObjectStream(bucket), Filter: "$O." + bucket + ".C." + info.NUID, Copies: true,
	}) {
		if err != nil {
			return nil, err
		}
		data = append(data, m.Data...)
		if n++; n == info.Chunks || len(data) > MaxClaimBytes {
			return data, nil
		}
	}
	return nil, Errorf(CodeNotFound, "%d of %d chunks are stored: it was deleted or replaced just now", n, info.Chunks)
}

// checkDigest reports a body that is not the one that was stored.
func checkDigest(info *jetstream.ObjectInfo, data []byte) error {
	if uint64(len(data)) != info.Size {
		return Errorf(CodeConflict, "%d bytes are stored, want %d", len(data), info.Size)
	}
	want, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(info.Digest, "SHA-256="))
	if sum := sha256.Sum256(data); err != nil || string(sum[:]) != string(want) {
		return Errorf(CodeConflict, "the hash of the stored body does not match")
	}
	return nil
}

// objectInfo reads the entry about a body; [ErrNotFound] if there is none. A copy of the stream that has none
// may only lag.
func (b *Bus) objectInfo(ctx context.Context, bucket, name string) (*jetstream.ObjectInfo, error) {
	stream, subj := ObjectStream(bucket), ObjectEntry(bucket, name)
	m, err := b.data.Ask(ctx, directGet+stream+"."+subj, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%w: %w", Errorf(CodeUnavailable, "the bucket does not exist yet"), err)
	}
	if err != nil {
		return nil, err
	}
	d, err := ParseDirect(m)
	stored := d.StoredMsg
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		stored, err = b.data.Stored(ctx, stream, Query{LastFor: subj})
	}
	if err != nil {
		return nil, err
	}
	info, err := parseEntry(stored)
	if err != nil || info.Deleted {
		return nil, errors.Join(ErrNotFound, err)
	}
	return info, nil
}

func parseEntry(m StoredMsg) (*jetstream.ObjectInfo, error) {
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return nil, fmt.Errorf("the entry at %d: %w", m.Seq, err)
	}
	info.ModTime = m.Time
	return &info, nil
}

// Objects lists the entries of a bucket of bodies, in no order. An entry that cannot be read is none.
func (b *Bus) Objects(ctx context.Context, bucket string) (out []*jetstream.ObjectInfo, err error) {
	for m, err := range b.data.Messages(ctx, Range{
		Stream: ObjectStream(bucket), Filter: "$O." + bucket + ".M.>", Copies: true,
	}) {
		if err != nil {
			return nil, err
		}
		if info, err := parseEntry(m); err == nil && !info.Deleted {
			out = append(out, info)
		}
	}
	return out, nil
}

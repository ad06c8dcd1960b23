package workspace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// Errors of a store.
var (
	// ErrFull means that the bucket, or the server, has no room.
	ErrFull = errors.New("the store of session files is full; raise streams.max_files_bytes or the server's storage, " +
		"or delete sessions")
	// ErrDamaged means that a part of a snapshot is missing or altered.
	ErrDamaged = errors.New("the stored files are damaged")
)

// Store stores snapshots. Its methods are safe for concurrent use. The errors are those of [journal.Bucket], and
// the ones above.
type Store struct {
	bucket *journal.Bucket
	enc    *zstd.Encoder
	dec    *zstd.Decoder
}

// New returns the store of a bus.
func New(j *journal.Journal) (*Store, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxChunk), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	return &Store{bucket: j.BulkBucket(journal.BucketFiles), enc: enc, dec: dec}, nil
}

// key returns the key of a part of a session's snapshot; part may be a wildcard.
func key(ref subject.Ref, part string) string {
	return string(ref.Agent) + "." + string(ref.Session) + "." + part
}

// headPart is the last token of the keys of heads.
const headPart = "head"

// Head returns the session's head, or [bus.ErrNotFound]: it has none, or is being deleted.
func (s *Store) Head(ctx context.Context, ref subject.Ref) (Head, error) {
	e, err := s.bucket.Get(ctx, key(ref, headPart))
	if err != nil {
		return Head{}, err
	}
	return headOf(ref, e)
}

func headOf(ref subject.Ref, e journal.Entry) (Head, error) {
	var h Head
	if err := json.Unmarshal(e.Value, &h); err != nil {
		return Head{}, fmt.Errorf("%w: reading the head: %w", ErrDamaged, err)
	}
	h.Revision = e.Revision
	if h.Version != version || h.Ref() != ref {
		return h, fmt.Errorf("%w: the head is of version %d and of session %s of %s", ErrDamaged, h.Version, h.Session, h.Agent)
	}
	return h, nil
}

// Last returns the revision of the last change of the session's head, which may be its deletion; 0: none.
func (s *Store) Last(ctx context.Context, ref subject.Ref) (uint64, error) {
	e, err := s.bucket.Last(ctx, key(ref, headPart))
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	return e.Revision, err
}

// Commit stores a head in place of the one with its Revision, and returns it with the new one. The error is
// [bus.ErrFenceLost] if there is another.
func (s *Store) Commit(ctx context.Context, h Head) (Head, error) {
	h.Version = version
	text, err := json.Marshal(h)
	if err != nil {
		return h, fmt.Errorf("storing the head: %w", err)
	}
	h.Revision, err = s.bucket.Put(ctx, key(h.Ref(), headPart), text, journal.Fence{Revision: h.Revision})
	return h, full(err)
}

// full returns ErrFull for the server's refusals for lack of space.
func full(err error) error {
	var f *bus.StorageFault
	if errors.Is(err, bus.ErrRefused) && errors.As(err, &f) {
		return fmt.Errorf("%w: %w", ErrFull, bus.ErrRefused) // the fault speaks of the log
	}
	return err
}

// PutPack stores a pack of at most [MaxChunk] bytes. It reports whether the pack is new: the same content may be
// stored already under the token.
func (s *Store) PutPack(ctx context.Context, ref subject.Ref, token string, raw []byte) (p Pack, fresh bool, err error) {
	digest := DigestOf(raw)
	p = Pack{Name: token + "-" + hex.EncodeToString(digest[:]), Size: len(raw)}
	_, err = s.bucket.Put(ctx, key(ref, p.Name), s.enc.EncodeAll(raw, nil), journal.Fence{})
	if errors.Is(err, bus.ErrFenceLost) {
		return p, false, nil
	}
	return p, err == nil, full(err)
}

// Pack returns a pack.
func (s *Store) Pack(ctx context.Context, ref subject.Ref, name string) ([]byte, error) {
	for e, err := range s.bucket.Matching(ctx, key(ref, name)) {
		if err != nil {
			return nil, err
		}
		raw, err := s.dec.DecodeAll(e.Value, nil)
		digest := DigestOf(raw)
		if err != nil || !strings.HasSuffix(name, "-"+hex.EncodeToString(digest[:])) {
			return nil, fmt.Errorf("%w: pack %s has another content", ErrDamaged, name)
		}
		return raw, nil
	}
	return nil, fmt.Errorf("%w: pack %s is missing", ErrDamaged, name)
}

// PutIndex stores an index and returns the names of its packs, and of those that are new.
func (s *Store) PutIndex(ctx context.Context, ref subject.Ref, token string, x Index) (names, fresh []string, err error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // paths stay as they are
	if err := enc.Encode(x); err != nil {
		return nil, nil, fmt.Errorf("storing the index: %w", err)
	}
	for text.Len() > 0 {
		p, isNew, err := s.PutPack(ctx, ref, token, text.Next(MaxChunk))
		if err != nil {
			return nil, fresh, err
		}
		if names = append(names, p.Name); isNew {
			fresh = append(fresh, p.Name)
		}
	}
	return names, fresh, nil
}

// Index returns the index of a head.
func (s *Store) Index(ctx context.Context, h Head) (x Index, err error) {
	var text []byte
	for _, name := range h.Index {
		raw, err := s.Pack(ctx, h.Ref(), name)
		if err != nil {
			return x, err
		}
		text = append(text, raw...)
	}
	if len(h.Index) == 0 {
		return x, nil
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return x, fmt.Errorf("%w: reading the index: %w", ErrDamaged, err)
	}
	for _, f := range x.Files {
		size := int64(0)
		for _, c := range f.Chunks {
			if c.Pack < 0 || c.Pack >= len(x.Packs) || c.Offset < 0 || c.Size <= 0 || c.Offset+c.Size > x.Packs[c.Pack].Size {
				return x, fmt.Errorf("%w: the index refers to what is not in a pack", ErrDamaged)
			}
			size += int64(c.Size)
		}
		if size != f.Size {
			return x, fmt.Errorf("%w: the index has %d bytes of a file of %d", ErrDamaged, size, f.Size)
		}
	}
	return x, nil
}

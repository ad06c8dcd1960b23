package archive

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// segmentBytes is how much a segment holds before the next one begins, decompressed.
const segmentBytes = 16 << 20

// Writer archives messages of one session, in order. A segment is stored whenever enough is collected, and by Close.
type Writer struct {
	store Store
	head  Header
	enc   *encoder

	Messages int   // that are stored
	Bytes    int64 // of the segments
}

// NewWriter returns a writer for messages of the session from the log that was created at a time.
func NewWriter(store Store, ref subject.Ref, log time.Time) *Writer {
	return &Writer{store: store, head: Header{Format: Format, Ref: ref, Log: log.UTC()}}
}

// Add takes the next message. It does not retain m.Data.
func (w *Writer) Add(ctx context.Context, m bus.StoredMsg) (err error) {
	if w.enc == nil {
		if w.enc, err = newEncoder(w.head); err != nil {
			return err
		}
	}
	if err := w.enc.add(m, m.Subject == w.head.Commit()); err != nil {
		return fmt.Errorf("archiving message %d of %s: %w", m.Seq, w.head.Ref, err)
	}
	if w.enc.raw < segmentBytes {
		return nil
	}
	return w.Close(ctx)
}

// Close stores what is collected, and reads it back. Everything that was added is archived once it returns nil.
func (w *Writer) Close(ctx context.Context) error {
	if w.enc == nil {
		return nil
	}
	n := w.enc.end.Messages
	name, body, err := w.enc.done()
	w.enc = nil
	if err != nil {
		return err
	}
	if err := w.store.Put(ctx, name, body); err != nil {
		return fmt.Errorf("storing %s in the archive %s: %w", name, w.store, err)
	}
	back, err := w.store.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("reading %s back from the archive %s: %w", name, w.store, err)
	}
	if !bytes.Equal(back, body) {
		return fmt.Errorf("%w: %s in %s reads back differently", ErrDamaged, name, w.store)
	}
	w.Messages, w.Bytes = w.Messages+n, w.Bytes+int64(len(body))
	return nil
}

// Segments returns the session's segments, in the order in which they were in the log. A log that was created later
// comes later.
func Segments(ctx context.Context, store Store, ref subject.Ref) ([]Segment, error) {
	names, err := store.List(ctx, dirOf(ref))
	if err != nil {
		return nil, fmt.Errorf("listing %s in the archive %s: %w", ref, store, err)
	}
	out := make([]Segment, 0, len(names))
	for _, n := range names {
		if s, is := parseName(ref, n); is {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Segment) int {
		return cmp.Or(a.Log.Compare(b.Log), cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	return out, nil
}

// Origin is the log whose messages are read. A log that was restored from a backup continues an earlier one, with the
// same sequences.
type Origin struct {
	Created  time.Time
	Restored bool
}

// part is a segment, as far as it belongs to the past of a log.
type part struct {
	Segment
	before uint64
}

// parts returns what of the segments, which are sorted, is the past of the log, in order. Of a log that was continued
// elsewhere, that is what precedes the first message that the later log has archived itself.
func (o Origin) parts(all []Segment) (out []part) {
	before, first := uint64(math.MaxUint64), uint64(math.MaxUint64)
	var log time.Time
	for _, s := range slices.Backward(all) {
		if own := s.Log.Unix() == o.Created.Unix(); !own && (!o.Restored || !s.Log.Before(o.Created)) {
			continue
		}
		if !s.Log.Equal(log) {
			log, before = s.Log, first
		}
		if s.First < before {
			out, first = append(out, part{s, before}), min(first, s.First)
		}
	}
	slices.Reverse(out)
	return out
}

// Read yields the session's archived messages of a log after a sequence, in order and each once. A run that was
// interrupted and repeated has archived some of them more than once.
func Read(ctx context.Context, store Store, ref subject.Ref, log Origin, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		all, err := Segments(ctx, store, ref)
		if err != nil {
			yield(bus.StoredMsg{}, err)
			return
		}
		for _, p := range log.parts(all) {
			if p.Last <= after {
				continue
			}
			messages, err := p.Messages(ctx, store, ref)
			if err != nil {
				yield(bus.StoredMsg{}, err)
				return
			}
			for _, m := range messages {
				if m.Seq <= after || m.Seq >= p.before {
					continue
				}
				if after = m.Seq; !yield(m, nil) {
					return
				}
			}
		}
	}
}

// Messages reads the whole segment.
func (s Segment) Messages(ctx context.Context, store Store, ref subject.Ref) ([]bus.StoredMsg, error) {
	body, err := store.Get(ctx, s.Name)
	if err != nil {
		return nil, fmt.Errorf("reading %s from the archive %s: %w", s.Name, store, err)
	}
	out, _, err := decode(s.Name, ref, body)
	return out, err
}

// Delete removes the session from the archive, of whichever log.
func Delete(ctx context.Context, store Store, ref subject.Ref) error {
	all, err := Segments(ctx, store, ref)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := store.Delete(ctx, s.Name); err != nil {
			return fmt.Errorf("deleting %s from the archive %s: %w", s.Name, store, err)
		}
	}
	return nil
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
)

// Point is the state of a session that is saved.
type Point struct {
	Call     string // the latest call that may have changed files
	Turn     uint64 // the sequence of its turn
	Packages []string
}

// Mark stores that a call has changed files which are not saved yet.
func (c *Copy) Mark(ctx context.Context, call string) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	h := c.head
	h.Unsaved = call
	h, err := c.store.Commit(ctx, h)
	if err == nil {
		c.head = h
	}
	return err
}

// begin finds out which head the first one of this copy replaces.
func (c *Copy) begin(ctx context.Context) error {
	if c.ready {
		return nil
	}
	last, err := c.store.Last(ctx, c.ref)
	if err != nil {
		return err
	}
	if last != 0 {
		switch old, err := c.store.Head(ctx, c.ref); {
		case err == nil && c.precedes(old):
			return ErrOvertaken
		case err == nil:
			c.head.Epoch = old.Epoch + 1
		case !errors.Is(err, bus.ErrNotFound) && !errors.Is(err, workspace.ErrDamaged):
			return err
		}
	}
	c.swept, c.head.Revision, c.ready = last == 0, last, true
	return nil
}

// precedes reports whether another head is by an instance that got the session after this one.
func (c *Copy) precedes(other workspace.Head) bool {
	switch mine, its := leaseTurn(c.head.Lease), leaseTurn(other.Lease); {
	case its != mine:
		return its > mine
	case other.Instance == c.head.Instance: // it is an earlier one of this copy
		return false
	case other.Epoch != c.head.Epoch:
		return other.Epoch > c.head.Epoch
	}
	return other.Turn > c.head.Turn
}

// leaseTurn returns the sequence of the turn in which a lease began, from its name t<sequence>-….
func leaseTurn(lease string) uint64 {
	first, _, _ := strings.Cut(lease, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(first, "t"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Save stores a change. When it returns nil, the files can be restored as they were seen. It returns
// [ErrOvertaken] if another instance has the session, and stores nothing then.
func (c *Copy) Save(ctx context.Context, sandbox Sandbox, ch *Change, at Point) error {
	err := c.save(ctx, sandbox, ch, at)
	if !errors.Is(err, bus.ErrFenceLost) {
		return err
	}
	fresh := c.fresh
	// Another writer was faster, the session was deleted, or the bucket was lost. What was stored may be gone.
	c.forget()
	last, err := c.store.Last(ctx, c.ref)
	if err != nil {
		return err
	}
	other, err := c.store.Head(ctx, c.ref)
	switch {
	case errors.Is(err, bus.ErrNotFound) && last != 0: // a marker
		return errors.New("the stored files were deleted meanwhile")
	case errors.Is(err, bus.ErrNotFound):
	case err != nil:
		return err
	case c.precedes(other):
		_ = c.store.Forget(ctx, c.ref, 0, fresh) // the next holder of the session tries again
		return ErrOvertaken
	}
	if ch, err = c.Look(ctx, sandbox); err != nil {
		return err
	}
	return c.save(ctx, sandbox, ch, at)
}

func (c *Copy) save(ctx context.Context, sandbox Sandbox, ch *Change, at Point) (err error) {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer func() { c.swept = c.swept && err == nil }() // a save that fails leaves packs
	c.fresh = nil
	w := c.writer(ch)
	if err := w.keep(ctx, ch.differs); err != nil {
		return err
	}
	if err := sandbox.Gather(ctx, ch.read, w.read); err != nil {
		return fmt.Errorf("reading the workspace: %w", err)
	}
	if !ch.differs && !w.differs {
		c.files = w.files // now they are sure
		return nil
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	index, packs := w.index()
	names, fresh, err := c.store.PutIndex(ctx, c.ref, c.head.Token, index)
	if c.fresh = append(c.fresh, fresh...); err != nil {
		return err
	}
	h := c.head
	h.Call, h.Turn, h.Packages, h.Unsaved = at.Call, at.Turn, at.Packages, ""
	h.Index, h.Taken, h.Files, h.Bytes = names, time.Now().UTC(), len(index.Files), w.bytes
	if h, err = c.store.Commit(ctx, h); err != nil {
		return err
	}
	before := c.names()
	c.head, c.files, c.packs, c.index, c.closed = h, w.files, packs, names, ch.Closed()
	c.tidy(ctx, before)
	return nil
}

// names are those of all packs of the stored snapshot.
func (c *Copy) names() []string {
	names := slices.Clone(c.index)
	for _, p := range c.packs {
		names = append(names, p.Name)
	}
	return names
}

// tidy removes what the head no longer refers to. What it cannot remove, the next holder of the session does: the
// snapshot is complete either way.
func (c *Copy) tidy(ctx context.Context, before []string) {
	if !c.swept {
		all, err := c.store.Stored(ctx, c.ref)
		if err != nil {
			return
		}
		before, c.swept = all, true
	}
	now := c.names()
	gone := slices.DeleteFunc(before, func(n string) bool { return slices.Contains(now, n) })
	if err := c.store.Forget(ctx, c.ref, c.head.Revision, gone); err != nil {
		// The server may still remove them, also if the same content is stored under the same names by then.
		c.swept, c.head.Token = false, nuid.Next()
	}
}

// writer makes the next snapshot of a copy.
type writer struct {
	c       *Copy
	ctx     context.Context //nolint:containedctx // lives as long as the save that it belongs to
	survey  agent.Survey
	files   map[string]*file
	have    map[workspace.Digest]chunk // that are stored, or in open
	open    *pack
	buf     []byte // of open
	differs bool
	bytes   int64
}

func (c *Copy) writer(ch *Change) *writer {
	w := &writer{c: c, survey: ch.survey, files: make(map[string]*file, len(ch.survey.Found)), open: &pack{}}
	read := make(map[string]bool, len(ch.read))
	for _, p := range ch.read {
		read[string(p)] = true
	}
	for _, f := range ch.survey.Found {
		next := &file{Found: f, sure: f.Sure(ch.survey)}
		if old := c.files[string(f.Path)]; old != nil && !read[string(f.Path)] {
			next.chunks = old.chunks
		}
		w.files[string(f.Path)] = next
		w.bytes += f.Size
	}
	return w
}

const (
	// small is the size of a pack that is worth merging with others, in bytes, and manySmall how many of
	// these there may be.
	small, manySmall = workspace.MaxChunk / 8, 16
)

// keep takes over the chunks that are stored, and stores those of stale packs anew.
func (w *writer) keep(ctx context.Context, commits bool) error {
	w.ctx, w.have = ctx, map[workspace.Digest]chunk{}
	stale := map[*pack]bool{}
	if commits {
		stale = w.stale()
	}
	for _, f := range w.c.files {
		for _, k := range f.chunks {
			if !stale[k.pack] {
				w.have[k.digest] = k
			}
		}
	}
	loaded := map[*pack][]byte{}
	for _, f := range w.files {
		if !slices.ContainsFunc(f.chunks, func(k chunk) bool { return stale[k.pack] }) {
			continue
		}
		f.chunks = slices.Clone(f.chunks)
		for i, k := range f.chunks {
			if !stale[k.pack] {
				continue
			}
			raw := loaded[k.pack]
			if raw == nil {
				var err error
				if raw, err = w.c.store.Pack(ctx, w.c.ref, k.pack.Name); err != nil {
					return fmt.Errorf("reading what is stored: %w", err)
				}
				loaded[k.pack] = raw
			}
			again, err := w.add(raw[k.offset : k.offset+k.size])
			if err != nil {
				return err
			}
			f.chunks[i] = again
		}
	}
	return nil
}

// stale returns the packs of which too little is in use, and the small ones if there are many.
func (w *writer) stale() map[*pack]bool {
	type place struct {
		pack   *pack
		offset int
	}
	live, seen := map[*pack]int{}, map[place]bool{}
	for _, f := range w.files {
		for _, k := range f.chunks {
			if at := (place{k.pack, k.offset}); !seen[at] {
				seen[at] = true
				live[k.pack] += k.size
			}
		}
	}
	stale, tiny := map[*pack]bool{}, []*pack(nil)
	for p, n := range live {
		switch {
		case n*2 < p.Size:
			stale[p] = true
		case p.Size < small:
			tiny = append(tiny, p)
		}
	}
	if len(tiny) > manySmall {
		for _, p := range tiny {
			stale[p] = true
		}
	}
	return stale
}

// read takes the content of a file.
func (w *writer) read(now agent.Found, content io.Reader) error {
	f := w.files[string(now.Path)]
	if f.Size != now.Size || f.Time != now.Time || f.Inode != now.Inode {
		return &agent.Error{Code: "failed", Message: "the workspace changes while it is saved"}
	}
	f.Identity, f.sure = now.Identity, now.Sure(w.survey)
	buf := make([]byte, min(now.Size, workspace.MaxChunk))
	for left := now.Size; left > 0; {
		piece := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(content, piece); err != nil {
			return err
		}
		k, err := w.add(piece)
		if err != nil {
			return err
		}
		f.chunks = append(f.chunks, k)
		left -= int64(len(piece))
	}
	old := w.c.files[string(now.Path)]
	w.differs = w.differs || old == nil || !slices.EqualFunc(f.chunks, old.chunks,
		func(a, b chunk) bool { return a.digest == b.digest })
	return nil
}

// add puts a chunk into the open pack, unless it is stored.
func (w *writer) add(data []byte) (chunk, error) {
	k := chunk{size: len(data), digest: workspace.DigestOf(data)}
	if have, ok := w.have[k.digest]; ok {
		return have, nil
	}
	if len(w.buf)+len(data) > workspace.MaxChunk {
		if err := w.flush(w.ctx); err != nil {
			return k, err
		}
	}
	k.pack, k.offset = w.open, len(w.buf)
	w.buf = append(w.buf, data...)
	w.have[k.digest] = k
	return k, nil
}

// flush stores the open pack.
func (w *writer) flush(ctx context.Context) error {
	if len(w.buf) == 0 {
		return nil
	}
	p, fresh, err := w.c.store.PutPack(ctx, w.c.ref, w.c.head.Token, w.buf)
	if err != nil {
		return fmt.Errorf("storing files: %w", err)
	}
	if fresh {
		w.c.fresh = append(w.c.fresh, p.Name)
	}
	w.open.Pack = p
	w.open, w.buf = &pack{}, w.buf[:0]
	return nil
}

// index returns the index of the snapshot, and the packs that it refers to.
func (w *writer) index() (x workspace.Index, packs []*pack) {
	x.Files = make([]workspace.File, 0, len(w.files))
	at := map[*pack]int{}
	for _, found := range w.survey.Found {
		f := w.files[string(found.Path)]
		out := workspace.File{
			Path: f.Path, Target: f.Target, Kind: f.Kind, Mode: f.Mode, Time: f.Time, Size: f.Size,
			Chunks: make([]workspace.Chunk, 0, len(f.chunks)),
		}
		for _, k := range f.chunks {
			n, known := at[k.pack]
			if !known {
				n = len(packs)
				at[k.pack], packs = n, append(packs, k.pack)
				x.Packs = append(x.Packs, k.pack.Pack)
			}
			out.Chunks = append(out.Chunks, workspace.Chunk{Pack: n, Offset: k.offset, Size: k.size, Digest: k.digest})
		}
		x.Files = append(x.Files, out)
	}
	return x, packs
}

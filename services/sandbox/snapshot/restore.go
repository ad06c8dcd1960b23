package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
)

// Find returns what is stored of a session's lease; found is false if nothing is.
func Find(ctx context.Context, store *workspace.Store, ref subject.Ref, lease string) (
	h workspace.Head, found bool, err error,
) {
	h, err = store.Head(ctx, ref)
	if errors.Is(err, bus.ErrNotFound) {
		return h, false, nil
	}
	return h, err == nil && h.Lease == lease, err
}

// Restore puts the files of a head into an empty sandbox, and returns its copy. From then on, the instance that
// had the session before can no longer save it. The error wraps [workspace.ErrDamaged] if the files are lost; it is
// an [*agent.Error] if the sandbox does not take them.
func Restore(
	ctx context.Context, store *workspace.Store, limits Limits, h workspace.Head, self subject.Instance, sandbox Sandbox,
) (*Copy, error) {
	c := New(store, limits, h.Ref(), h.Lease, self)
	x, err := c.claim(ctx, h)
	if err != nil {
		return nil, err
	}
	c.know(x)
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := c.write(ctx, w, x)
		_ = w.CloseWithError(err)
		written <- err
	}()
	err = sandbox.Import(ctx, r)
	_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // ends the writer if it still writes
	if why := <-written; why != nil && !errors.Is(why, io.ErrClosedPipe) {
		return nil, why
	}
	if err != nil {
		return nil, err
	}
	return c, c.Moved(ctx, sandbox)
}

// claim stores that this instance has the session now, and reads the index.
func (c *Copy) claim(ctx context.Context, h workspace.Head) (x workspace.Index, err error) {
	for range attempts {
		mine := h
		mine.Epoch, mine.Token, mine.Instance = h.Epoch+1, nuid.Next(), c.head.Instance
		switch mine, err = c.store.Commit(ctx, mine); {
		case err == nil:
			c.head, c.ready, c.index = mine, true, mine.Index
			return c.store.Index(ctx, mine)
		case errors.Is(err, workspace.ErrFull):
			// It restores what is there; the first save decides which instance goes on.
			mine.Revision = h.Revision
			c.head, c.ready, c.index = mine, true, mine.Index
			return c.store.Index(ctx, h)
		case !errors.Is(err, bus.ErrFenceLost):
			return x, err
		}
		again, found, err := Find(ctx, c.store, c.ref, h.Lease)
		if err != nil {
			return x, err
		}
		if !found {
			return x, fmt.Errorf("%w: they were deleted meanwhile", workspace.ErrDamaged)
		}
		h = again
	}
	return x, err
}

// attempts bounds how often a claim that another instance overtakes is tried.
const attempts = 5

// know makes the content of an index known.
func (c *Copy) know(x workspace.Index) {
	for _, p := range x.Packs {
		c.packs = append(c.packs, &pack{p})
	}
	for _, f := range x.Files {
		k := &file{Found: agent.Found{Head: headOf(f)}}
		for _, at := range f.Chunks {
			k.chunks = append(k.chunks, chunk{c.packs[at.Pack], at.Offset, at.Size, at.Digest})
		}
		c.files[string(f.Path)] = k
	}
}

func headOf(f workspace.File) agent.Head {
	return agent.Head{Path: f.Path, Target: f.Target, Kind: f.Kind, Mode: f.Mode, Time: f.Time, Size: f.Size}
}

// cached is how many packs are kept while files are restored: those of small files that lie beside each other are
// needed in turn.
const cached = 8

// write writes the archive of an index.
func (c *Copy) write(ctx context.Context, w io.Writer, x workspace.Index) error {
	out := agent.NewArchiveWriter(w)
	packs := map[int][]byte{}
	for _, f := range x.Files {
		if err := out.Add(headOf(f)); err != nil {
			return err
		}
		for _, k := range f.Chunks {
			raw := packs[k.Pack]
			if raw == nil {
				var err error
				if raw, err = c.store.Pack(ctx, c.ref, x.Packs[k.Pack].Name); err != nil {
					return err
				}
				if len(packs) == cached {
					clear(packs)
				}
				packs[k.Pack] = raw
			}
			if k.Offset+k.Size > len(raw) {
				return fmt.Errorf("%w: a pack is too short", workspace.ErrDamaged)
			}
			if _, err := w.Write(raw[k.Offset : k.Offset+k.Size]); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

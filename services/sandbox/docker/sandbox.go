package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"skandha.dev/services/sandbox/driver"
)

// How long a sandbox may take to end after its output has ended, or after its connection
// was closed on this side; and how far apart a busy engine may report that it has ended and
// that memory ran out, in either order.
const (
	endingTime  = 10 * time.Second
	closingTime = 2 * time.Second
	oomTime     = 2 * time.Second
)

// sandbox is a started container. It implements driver.Sandbox.
type sandbox struct {
	l    *link
	id   string // of the container
	name string

	conn net.Conn
	out  stdout // of conn; one reader at a time

	done chan struct{} // closed once it has ended
	gone chan struct{} // closed once the engine has removed it

	mu        sync.Mutex
	err       error // why it has ended
	exit      int   // its exit status
	starved   int64 // when a process in it was last killed for its memory, by the engine's clock, in ns
	endedAt   int64 // likewise
	destroyed bool  // Destroy was called
	isGone    bool
}

var _ driver.Sandbox = (*sandbox)(nil)

func (b *sandbox) Name() string          { return b.name }
func (b *sandbox) Done() <-chan struct{} { return b.done }

func (b *sandbox) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *sandbox) Write(p []byte) (int, error) {
	n, err := b.conn.Write(p)
	return n, b.because(err)
}

// Read returns io.EOF once the sandbox has ended; then Err returns why.
func (b *sandbox) Read(p []byte) (int, error) {
	n, err := b.out.Read(p)
	if err == nil {
		return n, nil
	}
	// The output ends a moment before the event of the sandbox's end arrives.
	wait := endingTime
	if errors.Is(err, net.ErrClosed) {
		wait = closingTime
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-b.done:
	case <-late.C:
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF // in the middle of a piece
	}
	return n, b.because(err)
}

// because returns the pipe's error, or the reason for the sandbox's end if it has ended.
func (b *sandbox) because(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if why := b.Err(); why != nil {
		return why
	}
	return err
}

// died handles the engine's event that the first process has ended.
func (b *sandbox) died(exit int, at int64) {
	b.mu.Lock()
	b.exit, b.endedAt = exit, at
	wait := exit == 128+9 && !b.outOfMemory() && !b.destroyed
	b.mu.Unlock()
	if wait { // killed: the event about its memory may arrive later
		time.AfterFunc(oomTime, b.ended)
		return
	}
	b.ended()
}

// oom handles the engine's event that a process in the sandbox was killed for its memory.
func (b *sandbox) oom(at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starved = at
}

// outOfMemory reports whether the first process was killed for its memory, as opposed to an
// earlier kill of a child.
func (b *sandbox) outOfMemory() bool {
	apart := time.Duration(b.endedAt - b.starved)
	return b.exit == 128+9 && apart.Abs() <= oomTime
}

func (b *sandbox) ended() {
	b.mu.Lock()
	why := fmt.Errorf("the sandbox ended by itself with exit status %d", b.exit)
	switch {
	case b.destroyed:
		why = driver.ErrDestroyed
	case b.outOfMemory():
		why = driver.ErrMemory
	case b.exit == 128+9:
		why = errors.New("the sandbox was killed")
	}
	b.mu.Unlock()
	b.end(why)
}

// end records why the sandbox has ended; the first reason is kept.
func (b *sandbox) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = why
		close(b.done)
	}
}

// removed handles the engine's event that nothing is left.
func (b *sandbox) removed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isGone {
		b.isGone = true
		close(b.gone)
	}
}

// wanted reports whether the reaper must not remove it.
func (b *sandbox) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.destroyed
}

func (b *sandbox) Destroy(ctx context.Context) error {
	b.mu.Lock()
	b.destroyed = true
	b.mu.Unlock()
	_ = b.conn.Close() // ends Read and Write, and a well-behaved agent
	if err := b.l.d.remove(ctx, b.id, b.gone); err != nil {
		return fmt.Errorf("destroying sandbox %s: %w", b.name, err)
	}
	b.awaitGone(ctx)
	b.end(driver.ErrDestroyed)
	b.l.forget(b)
	return nil
}

// awaitGone waits for the engine's event that nothing is left. For a container that ends by
// itself the engine reports earlier that it does not exist, while it still releases the
// volumes.
func (b *sandbox) awaitGone(ctx context.Context) {
	late := time.NewTimer(endingTime)
	defer late.Stop()
	select {
	case <-b.gone:
	case <-b.l.over: // no more events arrive
	case <-ctx.Done():
	case <-late.C:
	}
}

// remove kills and removes a container, and returns when nothing of it is left; gone may be
// nil.
func (d *Driver) remove(ctx context.Context, id string, gone <-chan struct{}) error {
	for {
		err := d.cli.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err): // else the engine is removing it already
			return d.explain(err)
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-gone:
			again.Stop()
			return nil
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

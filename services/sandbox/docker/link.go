package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// link is a connection to the engine: a lease, which shows that we are alive, and the
// engine's events about our containers. When either ends, all its sandboxes have ended.
type link struct {
	form.Engine
	d     *Driver
	boot  string // random
	seen  seen
	lease *sandbox

	stop context.CancelFunc // ends the event stream
	over chan struct{}      // closed when the event stream has ended

	mu        sync.Mutex
	names     map[string]bool     // being created
	sandboxes map[string]*sandbox // by container
	err       error               // why the link has ended
}

// origin is of everything that the link creates.
func (l *link) origin() form.Origin {
	return form.Origin{
		Owner: l.d.cfg.Owner, Instance: l.d.cfg.Instance, Boot: l.boot, Time: time.Now().UTC().Format(time.RFC3339),
	}
}

// ownUID returns a user id for one sandbox.
func (l *link) ownUID() int {
	first, n := l.UIDs()
	return first + rand.IntN(n)
}

// seen is what the lease's container reports about itself.
type seen struct {
	Python   string `json:"python"`
	Platform string `json:"platform"`
	Bytes    int64  `json:"bytes"` // of the workspace
	Files    int64  `json:"files"`
	Sockets  int64  `json:"sockets"` // bytes of their buffers, with cgroups v1; 0: unknown
}

// begin starts the lease and reads its report.
func (l *link) begin(ctx context.Context) (err error) {
	l.lease, err = l.create(ctx, form.Lease(l.ownUID()))
	if err != nil {
		return fmt.Errorf("testing a sandbox: %w", err)
	}
	unblock := context.AfterFunc(ctx, func() { _ = l.lease.conn.Close() })
	defer unblock()
	line, err := bufio.NewReader(io.LimitReader(l.lease, 4096)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &l.seen)
	}
	if err != nil {
		return fmt.Errorf("%w: Python does not start in the image %s: %w", driver.ErrUnavailable, l.d.cfg.Image,
			errors.Join(ctx.Err(), err, l.lease.Err()))
	}
	return nil
}

// listen follows the engine's events about our containers, starting before the first one.
func (l *link) listen(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	messages, errs := l.d.cli.Events(ctx, events.ListOptions{
		Since: l.Info.SystemTime, Filters: form.Events(l.d.cfg.Owner, l.boot),
	})
	go func() {
		defer close(l.over)
		for {
			select {
			case m := <-messages:
				l.hear(m)
			case err := <-errs:
				l.end(fmt.Errorf("%w: %w", errLost, err))
				return
			}
		}
	}()
}

func (l *link) hear(m events.Message) {
	l.mu.Lock()
	b := l.sandboxes[m.Actor.ID]
	l.mu.Unlock()
	if b == nil {
		return
	}
	switch m.Action {
	case events.ActionOOM:
		b.oom(m.TimeNano)
	case events.ActionDie:
		b.died(status(m.Actor.Attributes), m.TimeNano)
		if b == l.lease {
			l.end(fmt.Errorf("%w: the lease's container has ended", errLost))
		}
	case events.ActionDestroy:
		b.removed()
	}
}

// end ends the link: without it, other services treat its sandboxes as left behind.
func (l *link) end(why error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = why
	}
	sandboxes := l.sandboxes
	l.sandboxes = map[string]*sandbox{}
	l.mu.Unlock()
	if !first {
		return
	}
	l.stop()
	for _, b := range sandboxes {
		_ = b.conn.Close() // and the engine closes its input
		b.end(why)
	}
}

// close destroys all sandboxes of the link, and the lease last. The reaper removes those of
// a link that has ended.
func (l *link) close() error {
	if l.failure() != nil {
		<-l.over
		return nil
	}
	ctx, cancel := detached(context.Background())
	defer cancel()
	l.mu.Lock()
	sandboxes := make([]*sandbox, 0, len(l.sandboxes))
	for _, b := range l.sandboxes {
		if b != l.lease {
			sandboxes = append(sandboxes, b)
		}
	}
	l.mu.Unlock()
	errs := make([]error, len(sandboxes))
	var all sync.WaitGroup
	for i, b := range sandboxes {
		all.Go(func() { errs[i] = b.Destroy(ctx) })
	}
	all.Wait()
	l.end(errClosed)
	if l.lease != nil {
		errs = append(errs, l.lease.Destroy(ctx))
	}
	<-l.over
	return errors.Join(errs...)
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// reserve protects a container that is being created from the reaper.
func (l *link) reserve(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.names[name] {
		return fmt.Errorf("duplicate sandbox %s: it is already being created", name)
	}
	l.names[name] = true
	return nil
}

func (l *link) release(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, name)
}

func (l *link) add(b *sandbox) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.sandboxes[b.id] = b
	return nil
}

func (l *link) forget(b *sandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sandboxes, b.id)
}

// keeps reports whether one of the link's containers is in use.
func (l *link) keeps(id, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.sandboxes[id]; b != nil {
		return b.wanted()
	}
	return l.names[name]
}

package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"skandha.dev/services/sandbox/driver"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if !names.MatchString(spec.Name) {
		return nil, fmt.Errorf("name %q: want %s", spec.Name, names)
	}
	if spec.Limits == (driver.Limits{}) {
		spec.Limits = driver.DefaultLimits()
	}
	if err := spec.Limits.Validate(); err != nil {
		return nil, err
	}
	l, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := wanted{
		purpose: purposeSandbox, name: spec.Name, uid: l.ownUID(), args: spec.Args, env: driver.Environment(),
		limits: spec.Limits,
		fsize:  max(spec.Limits.Workspace, spec.Limits.Tmp),
	}
	if spec.Set != "" {
		if w.mount, err = d.mountOf(ctx, spec.Set); err != nil {
			return nil, err
		}
	}
	b, err := l.create(ctx, w)
	if err != nil {
		return nil, err
	}
	if spec.Set != "" {
		d.mu.Lock()
		d.used[spec.Set] = time.Now()
		d.mu.Unlock()
	}
	return b, nil
}

// create creates, attaches to and starts a container.
func (l *link) create(ctx context.Context, w wanted) (*sandbox, error) {
	name := l.d.cfg.Owner + "-" + w.purpose + "-" + l.boot[:8] + "-" + w.name
	if err := l.reserve(w.name); err != nil {
		return nil, err
	}
	defer l.release(w.name)
	made, err := l.d.cli.ContainerCreate(ctx, l.container(w), l.host(w), nil, nil, name)
	switch {
	case errdefs.IsNotFound(err):
		l.end(errors.New("its image was removed")) // the next link resolves the name again
		return nil, l.d.noImage()
	case err != nil:
		return nil, fmt.Errorf("creating container %s: %w", name, l.d.explain(err))
	}
	b, err := l.start(ctx, w, made.ID)
	if err != nil {
		ctx, cancel := detached(ctx)
		defer cancel()
		if e := l.d.remove(ctx, made.ID, nil); e != nil {
			l.d.log.Warn("cannot remove a container that did not start; the reaper retries", "container", name, "error", e)
		}
		return nil, fmt.Errorf("starting container %s: %w", name, l.d.explain(err))
	}
	return b, nil
}

func (l *link) start(ctx context.Context, w wanted, id string) (*sandbox, error) {
	if w.mount != nil {
		if err := l.d.verify(ctx, w.mount.Source); err != nil {
			return nil, err
		}
	}
	pipe, err := l.d.cli.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true})
	if err != nil {
		return nil, err
	}
	b := &sandbox{
		l: l, id: id, name: w.name, conn: pipe.Conn, out: stdout{r: pipe.Reader}, done: make(chan struct{}),
		gone: make(chan struct{}),
	}
	if err := l.add(b); err != nil {
		pipe.Close()
		return nil, err
	}
	if err := l.d.cli.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		pipe.Close()
		l.forget(b)
		return nil, err
	}
	return b, nil
}

// status returns the exit status in an event.
func status(attributes map[string]string) int {
	n, err := strconv.Atoi(attributes["exitCode"])
	if err != nil {
		return -1
	}
	return n
}

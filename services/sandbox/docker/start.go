package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if !form.Names.MatchString(spec.Name) {
		return nil, fmt.Errorf("name %q: want %s", spec.Name, form.Names)
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
	var set *mount.Mount
	if spec.Set != "" {
		data, err := d.dataOf(ctx, spec.Set)
		if err != nil {
			return nil, err
		}
		set = form.SetMount(d.cfg.Owner, data)
	}
	b, err := l.create(ctx, form.Sandbox(spec.Name, l.ownUID(), spec.Args, spec.Limits, set))
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
func (l *link) create(ctx context.Context, w form.Container) (*sandbox, error) {
	origin := l.origin()
	name := origin.ContainerName(w)
	if err := l.reserve(w.Name); err != nil {
		return nil, err
	}
	defer l.release(w.Name)
	body := l.Create(origin, w)
	made, err := l.d.cli.ContainerCreate(ctx, body.Config, body.HostConfig, nil, nil, name)
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

func (l *link) start(ctx context.Context, w form.Container, id string) (*sandbox, error) {
	if w.Mount != nil {
		if err := l.d.verify(ctx, w.Mount.Source); err != nil {
			return nil, err
		}
	}
	pipe, err := l.d.cli.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true})
	if err != nil {
		return nil, err
	}
	b := &sandbox{
		l: l, id: id, name: w.Name, conn: pipe.Conn, out: stdout{r: pipe.Reader}, done: make(chan struct{}),
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

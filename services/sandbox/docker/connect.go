package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/versions"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// connect returns the link, and creates one if there is none.
func (d *Driver) connect(ctx context.Context) (*link, error) {
	select {
	case d.linking <- struct{}{}:
		defer func() { <-d.linking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	l, closed := d.link, d.closed
	d.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case l != nil && l.failure() == nil:
		return l, nil
	}
	l, err := d.open(ctx)
	if err != nil {
		return nil, d.explain(err)
	}
	d.mu.Lock()
	d.link = l
	d.mu.Unlock()
	return l, nil
}

func (d *Driver) open(ctx context.Context) (*link, error) {
	l := &link{
		d: d, boot: form.Random(), over: make(chan struct{}),
		names: map[string]bool{}, sandboxes: map[string]*sandbox{},
	}
	info, err := d.cli.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("querying the Docker engine: %w", err)
	}
	l.Info = form.Facts(info)
	if api := d.cli.ClientVersion(); versions.LessThan(api, form.OldestAPI) {
		return nil, fmt.Errorf("%w: Docker engine %s is too old, want 20.10 or newer", driver.ErrUnavailable,
			l.Info.ServerVersion)
	}
	if l.Image, err = d.resolve(ctx); err != nil {
		return nil, err
	}
	if l.Runtime, err = form.Runtime(d.cfg.Runtime, l.Info); err != nil {
		return nil, err
	}
	l.listen(ctx)
	if err := l.begin(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// resolve finds the image, and checks the digest in its name.
func (d *Driver) resolve(ctx context.Context) (form.Image, error) {
	found, err := d.cli.ImageInspect(ctx, d.cfg.Image)
	if errdefs.IsNotFound(err) {
		return form.Image{}, d.noImage()
	}
	if err != nil {
		return form.Image{}, fmt.Errorf("looking for the image %s: %w", d.cfg.Image, err)
	}
	i, err := form.ImageOf(d.cfg.Image, found)
	if len(i.Volumes) > 0 {
		d.log.Warn("the image declares volumes; these directories are empty and read-only in sandboxes",
			"image", d.cfg.Image, "volumes", i.Volumes)
	}
	return i, err
}

package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"

	"skandha.dev/services/sandbox/driver"
)

// oldestAPI is the API version of engine 20.10.
const oldestAPI = "1.41"

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
		d: d, boot: strings.ToLower(rand.Text()), over: make(chan struct{}),
		names: map[string]bool{}, sandboxes: map[string]*sandbox{},
	}
	var err error
	if l.info, err = d.cli.Info(ctx); err != nil {
		return nil, fmt.Errorf("querying the Docker engine: %w", err)
	}
	if api := d.cli.ClientVersion(); versions.LessThan(api, oldestAPI) {
		return nil, fmt.Errorf("%w: Docker engine %s is too old, want 20.10 or newer", driver.ErrUnavailable,
			l.info.ServerVersion)
	}
	if l.image, err = d.resolve(ctx); err != nil {
		return nil, err
	}
	if l.runtime, err = d.choose(l.info); err != nil {
		return nil, err
	}
	l.listen(ctx)
	if err := l.begin(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// image is the image of the sandboxes, with the parts of its configuration to undo.
type image struct {
	id      string
	env     []string // names of variables
	volumes []string // directories
}

// resolve finds the image, and checks the digest in its name.
func (d *Driver) resolve(ctx context.Context) (image, error) {
	found, err := d.cli.ImageInspect(ctx, d.cfg.Image)
	if errdefs.IsNotFound(err) {
		return image{}, d.noImage()
	}
	if err != nil {
		return image{}, fmt.Errorf("looking for the image %s: %w", d.cfg.Image, err)
	}
	if _, digest, pinned := strings.Cut(d.cfg.Image, "@"); pinned && found.ID != digest {
		has := false
		for _, r := range found.RepoDigests {
			has = has || strings.HasSuffix(r, "@"+digest)
		}
		if !has {
			return image{}, fmt.Errorf("%w: the image %s in the Docker engine has another digest: %s, %s",
				driver.ErrUnavailable, d.cfg.Image, found.ID, strings.Join(found.RepoDigests, ", "))
		}
	}
	i := image{id: found.ID}
	if found.Config == nil {
		return i, nil
	}
	for _, v := range found.Config.Env {
		name, _, _ := strings.Cut(v, "=")
		i.env = append(i.env, name)
	}
	for dir := range found.Config.Volumes {
		i.volumes = append(i.volumes, path.Clean(dir))
	}
	if len(i.volumes) > 0 {
		d.log.Warn("the image declares volumes; these directories are empty and read-only in sandboxes",
			"image", d.cfg.Image, "volumes", i.volumes)
	}
	return i, nil
}

// choose selects the runtime.
func (d *Driver) choose(info system.Info) (string, error) {
	if _, offered := info.Runtimes[Runsc]; d.cfg.Runtime == Auto && offered {
		return Runsc, nil
	} else if d.cfg.Runtime == Auto {
		return "", nil
	}
	if _, offered := info.Runtimes[d.cfg.Runtime]; !offered {
		return "", fmt.Errorf("%w: the Docker engine does not offer the runtime %s: "+
			"install it and name it in the engine's daemon.json, or set another runtime",
			driver.ErrUnavailable, d.cfg.Runtime)
	}
	return d.cfg.Runtime, nil
}

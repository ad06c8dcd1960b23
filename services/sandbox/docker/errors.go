package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"skandha.dev/services/sandbox/driver"
)

// errLost is the reason when sandboxes end because their engine did.
var errLost = errors.New("the connection to the Docker engine was lost")

// explain adds what to do about an engine that cannot be used.
func (d *Driver) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err,
		driver.ErrUnavailable):
		return err
	case errors.Is(err, fs.ErrPermission), strings.Contains(err.Error(), "connect: permission denied"):
		return fmt.Errorf("%w: this user may not use the Docker engine at %s: "+
			"add it to the group docker (usermod -aG docker USER) and log in again: %w",
			driver.ErrUnavailable, d.cli.DaemonHost(), err)
	case client.IsErrConnectionFailed(err), strings.Contains(err.Error(), "cannot connect to the Docker daemon"):
		return fmt.Errorf("%w: no Docker engine answers at %s: "+
			"install one (Debian: docker.io) and start it (systemctl start docker), or set DOCKER_HOST: %w",
			driver.ErrUnavailable, d.cli.DaemonHost(), err)
	case strings.Contains(err.Error(), "opening seccomp profile failed"):
		return fmt.Errorf("%w: the engine at %s takes a seccomp profile only as a file on its host, as Podman does: "+
			"use a Docker engine, or the driver bwrap", driver.ErrUnavailable, d.cli.DaemonHost())
	}
	return err
}

// noImage returns an error that says how to get the image.
func (d *Driver) noImage() error {
	return fmt.Errorf("%w: the image %s is not in the Docker engine: run `make sandbox-image`", driver.ErrUnavailable,
		d.cfg.Image)
}

// detached returns a context for cleaning up after the caller's context has ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

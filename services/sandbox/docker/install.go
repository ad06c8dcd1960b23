package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// installTime bounds an installation, in addition to the caller's context.
const installTime = 15 * time.Minute

// outputKept is how many of the last lines an InstallError holds.
const outputKept = 100

// ended is how an installation ended.
type ended struct {
	Code  int    `json:"code"`
	Bytes int64  `json:"bytes"`
	Large bool   `json:"large"`
	Error string `json:"error"`
}

// Install creates a package set, in a container that has Config.Network.
func (d *Driver) Install(ctx context.Context, in driver.Install) (err error) {
	if in.MaxBytes <= 0 {
		return fmt.Errorf("max_bytes is %d, want more than 0", in.MaxBytes)
	}
	if there, err := d.whole(ctx, in.ID); there || err != nil {
		return err
	}
	l, err := d.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	data := form.DataName(d.cfg.Owner)
	if err := d.make(ctx, l, data, in.ID); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.discard(ctx, data)
		}
		d.mu.Lock()
		delete(d.making, data)
		d.mu.Unlock()
	}()
	how, err := d.install(ctx, l, data, in)
	if err != nil {
		return err
	}
	return d.publish(ctx, l, data, in.ID, how.Bytes)
}

// make creates the volume for the packages.
func (d *Driver) make(ctx context.Context, l *link, data, id string) error {
	d.mu.Lock()
	d.making[data] = true
	d.mu.Unlock()
	_, err := d.cli.VolumeCreate(ctx, l.origin().DataVolume(data, id))
	if err != nil {
		d.mu.Lock()
		delete(d.making, data)
		d.mu.Unlock()
		return fmt.Errorf("creating a volume for the packages: %w", d.explain(err))
	}
	return nil
}

// publish marks the volume as the complete set, unless another service was faster.
func (d *Driver) publish(ctx context.Context, l *link, data, id string, bytes int64) error {
	if _, err := d.cli.VolumeCreate(ctx, l.origin().SetVolume(id, data, bytes)); err != nil {
		return fmt.Errorf("publishing package set %s: %w", id, d.explain(err))
	}
	won, err := d.dataOf(ctx, id)
	if err != nil {
		return err
	}
	if won != data {
		d.discard(ctx, data)
	}
	return nil
}

// discard removes a volume that did not become a set.
func (d *Driver) discard(ctx context.Context, data string) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := d.cli.VolumeRemove(ctx, data, true); err != nil {
		d.log.Warn("cannot remove a volume of packages; the reaper retries", "volume", data, "error", err)
	}
}

// install installs the packages into the volume.
func (d *Driver) install(ctx context.Context, l *link, data string, in driver.Install) (how ended, err error) {
	b, err := l.create(ctx, form.Install(data, d.cfg.Network, in.MaxBytes, in.Args))
	if err != nil {
		return ended{}, err
	}
	defer func() {
		detached, cancel := detached(ctx)
		defer cancel()
		if e := b.Destroy(detached); e != nil {
			err = errors.Join(err, e)
		}
	}()
	unblock := context.AfterFunc(ctx, func() { _ = b.conn.Close() })
	defer unblock()
	how, output, err := follow(b, in.Output)
	switch {
	case ctx.Err() != nil:
		return ended{}, fmt.Errorf("installing packages: %w", ctx.Err())
	case err != nil:
		return ended{}, fmt.Errorf("installing packages: %w", errors.Join(err, b.Err()))
	case how.Error != "":
		return ended{}, fmt.Errorf("installing packages: %s", how.Error)
	case how.Large:
		return ended{}, &driver.InstallError{
			Output: append(output, fmt.Sprintf("the packages are larger than %d MiB", in.MaxBytes>>20)),
		}
	case how.Code != 0:
		return ended{}, &driver.InstallError{Output: output}
	}
	return how, nil
}

// follow forwards the printed lines, and returns how the installation ended and the last
// lines.
func follow(r io.Reader, tell func(string)) (how ended, output []string, err error) {
	lines := bufio.NewScanner(r) // lines of up to 64 KiB; install.py cuts those longer than 4 KiB
	for lines.Scan() {
		kind, text := "", lines.Text()
		if text != "" {
			kind, text = text[:1], strings.ToValidUTF8(text[1:], "\uFFFD")
		}
		switch kind {
		case "o":
			if output = append(output, text); len(output) > outputKept {
				output = output[1:]
			}
			if tell != nil {
				tell(text)
			}
		case "r":
			return how, output, json.Unmarshal([]byte(text), &how)
		default:
			return how, output, errors.New("invalid output of the installer")
		}
	}
	return how, output, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

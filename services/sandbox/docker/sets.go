package docker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/driver"
)

var (
	names = regexp.MustCompile(`^[a-z0-9-]{1,48}$`)
	ids   = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// marker returns the name of the volume that marks a set as complete.
func (d *Driver) marker(id string) string { return d.cfg.Owner + "-set-" + id }

// dataOf returns the volume of a set's packages, or ErrNoSet.
func (d *Driver) dataOf(ctx context.Context, id string) (string, error) {
	if !ids.MatchString(id) {
		return "", fmt.Errorf("package set %q: want %s", id, ids)
	}
	v, err := d.cli.VolumeInspect(ctx, d.marker(id))
	switch {
	case errdefs.IsNotFound(err):
		return "", driver.ErrNoSet
	case err != nil:
		return "", fmt.Errorf("looking up package set %s: %w", id, d.explain(err))
	case v.Labels[labelOwner] != d.cfg.Owner || v.Labels[labelSet] != id || v.Labels[labelData] == "":
		return "", fmt.Errorf("the volume %s has another owner; configure another owner label", v.Name)
	}
	return v.Labels[labelData], nil
}

// mountOf returns the mount of a set. If the volume is removed in the meantime, the engine
// creates a new one, which verify detects by its labels.
func (d *Driver) mountOf(ctx context.Context, id string) (*mount.Mount, error) {
	data, err := d.dataOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return &mount.Mount{
		Type: mount.TypeVolume, Source: data, Target: driver.Packages, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{
			NoCopy: true, Labels: map[string]string{labelOwner: d.cfg.Owner, labelPurpose: purposeStray},
		},
	}, nil
}

// verify returns ErrNoSet unless the volume is one of packages. The volume cannot be
// removed now since a container uses it.
func (d *Driver) verify(ctx context.Context, name string) error {
	v, err := d.cli.VolumeInspect(ctx, name)
	if err != nil {
		return fmt.Errorf("inspecting volume %s: %w", name, err)
	}
	if v.Labels[labelOwner] != d.cfg.Owner || v.Labels[labelPurpose] != purposeData {
		return driver.ErrNoSet
	}
	return nil
}

// Sets lists the package sets. Used is when a sandbox of this driver last got the set, or
// else its creation time.
func (d *Driver) Sets(ctx context.Context) ([]driver.Set, error) {
	found, err := d.cli.VolumeList(ctx, volume.ListOptions{Filters: d.ours()})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", d.explain(err))
	}
	there := map[string]bool{}
	for _, v := range found.Volumes {
		there[v.Name] = v.Labels[labelPurpose] == purposeData
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.Set
	for _, v := range found.Volumes {
		if v.Labels[labelPurpose] != purposeSet || !there[v.Labels[labelData]] {
			continue
		}
		s := driver.Set{ID: v.Labels[labelSet], Used: d.used[v.Labels[labelSet]]}
		s.Bytes, _ = strconv.ParseInt(v.Labels[labelBytes], 10, 64) // 0: unknown
		if s.Used.IsZero() {
			s.Used, _ = time.Parse(time.RFC3339, v.CreatedAt)
		}
		out = append(out, s)
	}
	return out, nil
}

// RemoveSet removes a set: its packages first, which fails while a sandbox uses them.
// A set without packages counts as absent.
func (d *Driver) RemoveSet(ctx context.Context, id string) error {
	data, err := d.dataOf(ctx, id)
	if err != nil {
		return err
	}
	err = d.cli.VolumeRemove(ctx, data, false)
	if errdefs.IsConflict(err) {
		return driver.ErrInUse
	}
	if errdefs.IsNotFound(err) { // an interrupted removal
		err = nil
	}
	if err == nil {
		err = d.cli.VolumeRemove(ctx, d.marker(id), false)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing package set %s: %w", id, d.explain(err))
	}
	return nil
}

// whole reports whether a set exists.
func (d *Driver) whole(ctx context.Context, id string) (bool, error) {
	data, err := d.dataOf(ctx, id)
	if errors.Is(err, driver.ErrNoSet) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch err := d.verify(ctx, data); {
	case errdefs.IsNotFound(err), errors.Is(err, driver.ErrNoSet):
		// Its removal was interrupted; finish that first.
		return false, d.RemoveSet(ctx, id)
	case err != nil:
		return false, d.explain(err)
	}
	return true, nil
}

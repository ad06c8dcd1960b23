package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
)

// dataOf returns the volume of a set's packages, or ErrNoSet.
func (d *Driver) dataOf(ctx context.Context, id string) (string, error) {
	if !form.Sets.MatchString(id) {
		return "", fmt.Errorf("package set %q: want %s", id, form.Sets)
	}
	v, err := d.cli.VolumeInspect(ctx, form.Marker(d.cfg.Owner, id))
	switch {
	case errdefs.IsNotFound(err):
		return "", driver.ErrNoSet
	case err != nil:
		return "", fmt.Errorf("looking up package set %s: %w", id, d.explain(err))
	case v.Labels[form.LabelOwner] != d.cfg.Owner || v.Labels[form.LabelSet] != id || v.Labels[form.LabelData] == "":
		return "", fmt.Errorf("the volume %s has another owner; configure another owner label", v.Name)
	}
	return v.Labels[form.LabelData], nil
}

// verify returns ErrNoSet unless the volume is one of packages. The volume cannot be
// removed now since a container uses it.
func (d *Driver) verify(ctx context.Context, name string) error {
	v, err := d.cli.VolumeInspect(ctx, name)
	if err != nil {
		return fmt.Errorf("inspecting volume %s: %w", name, err)
	}
	if v.Labels[form.LabelOwner] != d.cfg.Owner || v.Labels[form.LabelPurpose] != form.PurposeData {
		return driver.ErrNoSet
	}
	return nil
}

// Sets lists the package sets. Used is when a sandbox of this driver last got the set, or
// else its creation time.
func (d *Driver) Sets(ctx context.Context) ([]driver.Set, error) {
	found, err := d.cli.VolumeList(ctx, volume.ListOptions{Filters: form.Owned(d.cfg.Owner)})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", d.explain(err))
	}
	there := map[string]bool{}
	for _, v := range found.Volumes {
		there[v.Name] = v.Labels[form.LabelPurpose] == form.PurposeData
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []driver.Set
	for _, v := range found.Volumes {
		if v.Labels[form.LabelPurpose] != form.PurposeSet || !there[v.Labels[form.LabelData]] {
			continue
		}
		s := driver.Set{ID: v.Labels[form.LabelSet], Used: d.used[v.Labels[form.LabelSet]]}
		s.Bytes, _ = strconv.ParseInt(v.Labels[form.LabelBytes], 10, 64) // 0: unknown
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
		err = d.cli.VolumeRemove(ctx, form.Marker(d.cfg.Owner, id), false)
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

package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/docker/form"
)

// leaseTime bounds the time from the creation of a lease to its start, by the engine's
// clock. It is shorter than driver.ReapEvery, so that nothing stays longer.
const leaseTime = 10 * time.Second

// Reap removes our containers and volumes without a running lease, and those that this
// driver has created and no longer knows.
func (d *Driver) Reap(ctx context.Context) (int, error) {
	found, err := d.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: form.Owned(d.cfg.Owner)})
	if err != nil {
		return 0, fmt.Errorf("listing containers: %w", d.explain(err))
	}
	alive, err := d.alive(ctx, found)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, c := range found {
		if alive[c.Labels[form.LabelBoot]] && d.keeps(c) {
			continue
		}
		if err := d.remove(ctx, c.ID, nil); err != nil {
			errs = append(errs, fmt.Errorf("removing container %s: %w", c.ID[:12], err))
			continue
		}
		n++
		d.log.Info("removed a container left behind", "container", c.ID[:12], "purpose", c.Labels[form.LabelPurpose],
			"name", c.Labels[form.LabelName], "instance", c.Labels[form.LabelInstance])
	}
	volumes, err := d.reapVolumes(ctx, alive)
	return n + volumes, errors.Join(append(errs, err)...)
}

// alive returns the boots whose lease runs, or is about to.
func (d *Driver) alive(ctx context.Context, found []container.Summary) (map[string]bool, error) {
	out := map[string]bool{}
	for _, c := range found {
		if c.Labels[form.LabelPurpose] != form.PurposeLease {
			continue
		}
		switch c.State {
		case container.StateRunning, container.StatePaused, container.StateRestarting:
			out[c.Labels[form.LabelBoot]] = true
		case container.StateCreated:
			info, err := d.cli.Info(ctx)
			if err != nil {
				return nil, fmt.Errorf("querying the engine's time: %w", d.explain(err))
			}
			now, err := time.Parse(time.RFC3339Nano, info.SystemTime)
			if err != nil {
				return nil, fmt.Errorf("the engine's time: %w", err)
			}
			out[c.Labels[form.LabelBoot]] = now.Sub(time.Unix(c.Created, 0)) < leaseTime
		}
	}
	return out, nil
}

// current returns the current link, or nil.
func (d *Driver) current() *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link
}

// keeps reports whether a container with a running lease is in use. Containers of other
// services are unknown to this driver.
func (d *Driver) keeps(c container.Summary) bool {
	l := d.current()
	if l == nil || c.Labels[form.LabelBoot] != l.boot {
		return true
	}
	return l.keeps(c.ID, c.Labels[form.LabelName])
}

// reapVolumes removes packages that no set refers to and whose service is dead, sets whose
// packages are missing, and volumes that the engine created by mistake.
func (d *Driver) reapVolumes(ctx context.Context, alive map[string]bool) (int, error) {
	found, err := d.cli.VolumeList(ctx, volume.ListOptions{Filters: form.Owned(d.cfg.Owner)})
	if err != nil {
		return 0, fmt.Errorf("listing volumes: %w", d.explain(err))
	}
	there, wanted := map[string]bool{}, map[string]bool{}
	for _, v := range found.Volumes {
		there[v.Name] = v.Labels[form.LabelPurpose] == form.PurposeData
		wanted[v.Labels[form.LabelData]] = true // of a set; other volumes lack this label
	}
	l := d.current()
	n := 0
	var errs []error
	for _, v := range found.Volumes {
		keep := false
		switch boot := v.Labels[form.LabelBoot]; v.Labels[form.LabelPurpose] {
		case form.PurposeSet:
			keep = there[v.Labels[form.LabelData]]
		case form.PurposeData:
			keep = wanted[v.Name] || alive[boot] && (l == nil || boot != l.boot) || d.isMaking(v.Name)
		}
		if keep {
			continue
		}
		switch err := d.cli.VolumeRemove(ctx, v.Name, false); {
		case err == nil:
			n++
			d.log.Info("removed a volume left behind", "volume", v.Name, "purpose", v.Labels[form.LabelPurpose])
		case errdefs.IsNotFound(err), errdefs.IsConflict(err): // another service was faster; a sandbox still uses it
		default:
			errs = append(errs, fmt.Errorf("removing volume %s: %w", v.Name, err))
		}
	}
	return n, errors.Join(errs...)
}

func (d *Driver) isMaking(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.making[name]
}

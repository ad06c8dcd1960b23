package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"skandha.dev/services/sandbox/docker/form"
)

// onContainer passes on a request about a container of the owner.
func (p *Proxy) onContainer(c *call) error {
	if err := p.ownContainer(c.r.Context(), c.name); err != nil {
		return err
	}
	return p.pass(c)
}

// onVolume passes on a request about a volume of the owner.
func (p *Proxy) onVolume(c *call) error {
	if _, err := p.ownVolume(c.r.Context(), c.name); err != nil {
		return err
	}
	return p.pass(c)
}

// createContainer creates a container that the driver might have asked for.
func (p *Proxy) createContainer(c *call) error {
	if p.draining.Load() {
		return &problem{http.StatusServiceUnavailable, "the engine proxy is shutting down"}
	}
	ctx := c.r.Context()
	id, err := form.ImageID(c.content)
	if err != nil {
		return refuse("%v", err)
	}
	engine, err := p.engineFor(ctx, id)
	if err != nil {
		return err
	}
	asked, err := form.Read(engine, c.content, c.args.Get("name"), p.cfg.bounds())
	if err != nil {
		return refuse("%v", err)
	}
	mounted, err := p.checkMount(ctx, asked)
	if err != nil {
		return err
	}
	defer mounted()
	done, err := p.room(ctx, &p.making.containers, p.cfg.Containers, "containers", p.countContainers)
	if err != nil {
		return err
	}
	defer done()
	return p.edit(c, asked.Body, http.StatusCreated, func(text []byte) ([]byte, error) {
		var made container.CreateResponse
		err := json.Unmarshal(text, &made)
		if err == nil {
			p.owned.Add(made.ID, struct{}{})
		}
		return text, err
	})
}

// checkMount checks the volume of a container. A sandbox may name one that has just been removed: the engine
// makes an empty one then, with the owner's label. The caller calls done when the container is made.
func (p *Proxy) checkMount(ctx context.Context, asked form.Request) (done func(), err error) {
	done = func() {}
	if asked.Mount == nil {
		return done, nil
	}
	v, err := p.ownVolume(ctx, asked.Mount.Source)
	switch {
	case err != nil && asProblem(err).status == http.StatusNotFound && asked.Purpose == form.PurposeSandbox:
		return p.room(ctx, &p.making.volumes, p.cfg.Volumes, "volumes", p.countVolumes)
	case err != nil:
		return nil, err
	case asked.Purpose == form.PurposeSandbox && v.Labels[form.LabelPurpose] == form.PurposeStray:
		return done, nil // the same, a moment later
	case v.Labels[form.LabelPurpose] != form.PurposeData:
		return nil, refuse("the volume %s does not hold packages", v.Name)
	case asked.Purpose == form.PurposeInstall && v.Labels[form.LabelBoot] != asked.Boot:
		return nil, refuse("the volume %s was created by another service", v.Name)
	}
	return done, nil
}

// createVolume creates a volume that the driver might have asked for.
func (p *Proxy) createVolume(c *call) error {
	body, err := form.ReadVolume(c.content, p.cfg.Owner)
	if err != nil {
		return refuse("%v", err)
	}
	done, err := p.room(c.r.Context(), &p.making.volumes, p.cfg.Volumes, "volumes", p.countVolumes)
	if err != nil {
		return err
	}
	defer done()
	return p.forward(c, body)
}

// room reserves one of the things that the owner may have. The caller calls done once the engine counts it.
func (p *Proxy) room(ctx context.Context, making *atomic.Int64, most int, what string,
	count func(context.Context) (int, error),
) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	mine := making.Add(1)
	n, err := count(ctx)
	if err == nil && int64(n)+mine <= int64(most) {
		return func() { making.Add(-1) }, nil
	}
	making.Add(-1)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, p.unavailable(err)
	}
	return nil, refuse("%d %s exist, want at most %d", n, what, most)
}

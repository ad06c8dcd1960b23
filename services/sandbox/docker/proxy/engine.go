package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"

	"skandha.dev/services/sandbox/docker/form"
)

const (
	maxAnswer  = 8 << 20          // bytes of an answer that is read whole
	maxImages  = 64               // that are remembered
	lookupTime = 30 * time.Second // for the engine to answer a question of the proxy
	writeTime  = 30 * time.Second // for the client to take a piece of an answer
)

// unavailable is the answer when the engine does not answer. The driver knows its words.
func (p *Proxy) unavailable(err error) error {
	return &problem{
		http.StatusServiceUnavailable, fmt.Sprintf("cannot connect to the Docker daemon at %s: %v", p.cfg.Engine, err),
	}
}

// engineError is the answer when a question of the proxy fails.
func (p *Proxy) engineError(err error) error {
	if errdefs.IsNotFound(err) {
		return &problem{http.StatusNotFound, err.Error()}
	}
	return p.unavailable(err)
}

// request makes the request to the engine.
func (c *call) request(ctx context.Context, body []byte) (*http.Request, error) {
	target := "http://engine" + c.version + c.path
	if len(c.args) > 0 {
		target += "?" + c.args.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, c.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// ask sends a request to the engine. The caller closes the answer's body.
func (p *Proxy) ask(c *call, body []byte) (*http.Response, error) {
	r, err := c.request(c.r.Context(), body)
	if err != nil {
		return nil, err
	}
	res, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, p.unavailable(err)
	}
	return res, nil
}

// pass passes a request on as it is, and the answer as it comes.
func (p *Proxy) pass(c *call) error {
	return p.forward(c, nil)
}

// forward asks the engine with this body, and passes the answer on as it comes.
func (p *Proxy) forward(c *call, body []byte) error {
	res, err := p.ask(c, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	relay(c.w, res)
	return nil
}

// events passes the engine's events on, until the client or the proxy ends.
func (p *Proxy) events(c *call) error {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	c.r = c.r.WithContext(ctx)
	return p.pass(c)
}

// head writes the status and those headers of an answer that clients read.
func head(w http.ResponseWriter, res *http.Response) {
	for _, name := range []string{"Content-Type", "Api-Version", "Ostype"} {
		if v := res.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(res.StatusCode)
}

// relay copies an answer while it comes. A client that does not read ends it.
func relay(w http.ResponseWriter, res *http.Response) {
	control := http.NewResponseController(w)
	head(w, res)
	piece := make([]byte, 32<<10)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime))
		if err := control.Flush(); err != nil {
			panic(http.ErrAbortHandler) // the client has gone
		}
		n, err := res.Body.Read(piece)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(writeTime))
			if _, err := w.Write(piece[:n]); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		if errors.Is(err, io.EOF) {
			_ = control.SetWriteDeadline(time.Now().Add(writeTime))
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the answer must not look whole
		}
	}
}

// edit asks the engine with this body. It passes on the answer as f changes it if it has that status, and else as
// it comes.
func (p *Proxy) edit(c *call, body []byte, status int, f func(text []byte) ([]byte, error)) error {
	res, err := p.ask(c, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != status {
		relay(c.w, res)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return p.unavailable(err)
	}
	if text, err = f(text); err != nil {
		return fmt.Errorf("the engine's answer: %w", err)
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTime))
	head(c.w, res)
	_, err = c.w.Write(text)
	return err
}

// info answers with the part of the engine's description that the driver uses.
func (p *Proxy) info(c *call) error {
	return p.edit(c, nil, http.StatusOK, func(text []byte) ([]byte, error) {
		var whole system.Info
		if err := json.Unmarshal(text, &whole); err != nil {
			return nil, err
		}
		facts := form.Facts(whole)
		p.mu.Lock()
		p.facts = &facts
		p.mu.Unlock()
		return json.Marshal(facts)
	})
}

// image answers with the configured image, and remembers it.
func (p *Proxy) image(c *call) error {
	return p.edit(c, nil, http.StatusOK, func(text []byte) ([]byte, error) {
		var found image.InspectResponse
		if err := json.Unmarshal(text, &found); err != nil {
			return nil, err
		}
		if i, err := form.ImageOf(p.cfg.Image, found); err == nil { // else the driver refuses it, too
			p.learn(i)
		}
		return text, nil
	})
}

func (p *Proxy) learn(i form.Image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.images) >= maxImages {
		clear(p.images)
	}
	p.images[i.ID] = i
}

// engineFor returns what a container of that image depends on. The image must be one that has had the
// configured name since the proxy started.
func (p *Proxy) engineFor(ctx context.Context, id string) (form.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	p.mu.Lock()
	facts := p.facts
	i, known := p.images[id]
	p.mu.Unlock()
	if facts == nil {
		whole, err := p.cli.Info(ctx)
		if err != nil {
			return form.Engine{}, p.engineError(err)
		}
		whole = form.Facts(whole)
		facts = &whole
		p.mu.Lock()
		p.facts = facts
		p.mu.Unlock()
	}
	runtime, err := form.Runtime(p.cfg.Runtime, *facts)
	if err != nil {
		return form.Engine{}, refuse("%v", err)
	}
	if !known {
		found, err := p.cli.ImageInspect(ctx, p.cfg.Image)
		if err != nil {
			return form.Engine{}, p.engineError(err)
		}
		if i, err = form.ImageOf(p.cfg.Image, found); err != nil || i.ID != id {
			return form.Engine{}, refuse("Image is %.100q, want the id of %s", id, p.cfg.Image)
		}
		p.learn(i)
	}
	return form.Engine{Info: *facts, Runtime: runtime, Image: i}, nil
}

// ownContainer returns an error unless the engine has that container, with the owner's label.
func (p *Proxy) ownContainer(ctx context.Context, id string) error {
	if p.owned.Contains(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := p.cli.ContainerInspect(ctx, id)
	if err != nil {
		return p.engineError(err)
	}
	// The engine also takes a name, and a name may look like an id.
	if found.ContainerJSONBase == nil || found.Config == nil || found.ID != id ||
		found.Config.Labels[form.LabelOwner] != p.cfg.Owner {
		return refuse("container %s has another owner", id)
	}
	p.owned.Add(id, struct{}{})
	return nil
}

// ownVolume returns a volume of the owner. Another one may get its name at any time, so nothing is remembered.
func (p *Proxy) ownVolume(ctx context.Context, name string) (volume.Volume, error) {
	if !form.IsVolume(p.cfg.Owner, name) {
		return volume.Volume{}, refuse("the volume %.100s has another owner", name)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	v, err := p.cli.VolumeInspect(ctx, name)
	if err != nil {
		return v, p.engineError(err)
	}
	if v.Name != name || v.Labels[form.LabelOwner] != p.cfg.Owner {
		return v, refuse("the volume %s has another owner; configure another owner label", name)
	}
	return v, nil
}

// countContainers returns how many containers the owner has.
func (p *Proxy) countContainers(ctx context.Context) (int, error) {
	found, err := p.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: form.Owned(p.cfg.Owner)})
	return len(found), err
}

func (p *Proxy) countVolumes(ctx context.Context) (int, error) {
	found, err := p.cli.VolumeList(ctx, volume.ListOptions{Filters: form.Owned(p.cfg.Owner)})
	return len(found.Volumes), err
}

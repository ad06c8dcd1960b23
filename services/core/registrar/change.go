package registrar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// edit is a change of one manifest's record.
type edit struct {
	name   subject.Plugin
	record *registry.Record // nil: delete it
	more   bool             // decide again once it is stored
}

// catchUp bounds the wait for the view after a lost fence. The write that won is about to
// arrive.
const catchUp = 250 * time.Millisecond

// change calls decide with the registry's current content and stores the edit that it
// returns, provided that no manifest was written meanwhile; otherwise it calls decide
// again. So each decision still holds when it is stored. If decide returns nil, there is
// nothing to do. change accepts nil or an error only for content that includes everything
// stored before the call. It returns when the view has seen the change.
func (r *Registrar) change(ctx context.Context, decide func(*registry.Content) (*edit, error)) error {
	select {
	case r.deciding <- struct{}{}:
		defer func() { <-r.deciding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for least := uint64(0); ; {
		c := r.view.Content()
		e, err := decide(c)
		if err != nil || e == nil {
			if least == 0 && ctx.Err() == nil { // no fence shows whether the view lags behind
				var ask error
				if least, ask = r.bucket.Revision(ctx); ask != nil {
					return errors.Join(err, ask)
				}
				if c.Revision < least && r.view.Await(ctx, least) == nil {
					continue
				}
			}
			return err
		}
		least = 0
		revision, err := r.write(ctx, c.ManifestRevision, e)
		switch {
		case err == nil:
			if err := r.view.Await(ctx, revision); err != nil {
				return err
			}
			if !e.more {
				return nil
			}
		case ctx.Err() != nil:
			return err
		case errors.Is(err, nats.ErrNoResponders): // the bucket was lost
			if err := r.bus.RestoreStreams(ctx, r.cfg.Streams); err != nil {
				return err
			}
			r.awaitManifest(ctx, c.ManifestRevision)
		case errors.Is(err, bus.ErrFenceLost):
			r.awaitManifest(ctx, c.ManifestRevision)
		default:
			return err
		}
	}
}

func (r *Registrar) write(ctx context.Context, fence uint64, e *edit) (uint64, error) {
	f := journal.Fence{Filter: subject.AllManifests, Revision: fence}
	if e.record == nil {
		return r.bucket.Delete(ctx, subject.ManifestKey(e.name), f)
	}
	body, err := json.Marshal(e.record)
	if err != nil {
		return 0, fmt.Errorf("encoding the record of %s: %w", e.name, err)
	}
	return r.bucket.Put(ctx, subject.ManifestKey(e.name), body, f)
}

// awaitManifest waits until the view has seen a later change of a manifest than last.
func (r *Registrar) awaitManifest(ctx context.Context, last uint64) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	// the caller decides again either way
	_ = r.view.AwaitChange(ctx, func(c *registry.Content) bool { return c.ManifestRevision != last })
}

// revise returns a copy of a record to be changed, without obsolete drains.
func (r *Registrar) revise(c *registry.Content, old *registry.StoredRecord) *registry.Record {
	n := old.Record
	n.Draining = slices.DeleteFunc(slices.Clone(n.Draining), func(d registry.Drain) bool {
		return c.Leases[n.Manifest.Name][d.Instance] == nil && (d.By != registry.ByOperator || time.Since(d.At) > r.cfg.Keep)
	})
	const most = 256
	n.Draining = n.Draining[max(0, len(n.Draining)-most):]
	return &n
}

// release records that a plugin has no replicas left, so that its names are free. The
// plugin counts as lost unless last, the replica that had the last lease, was draining.
func (r *Registrar) release(ctx context.Context, name subject.Plugin, last subject.Instance) error {
	return r.change(ctx, func(c *registry.Content) (*edit, error) {
		old := c.Records[name]
		if old == nil || !old.Released.IsZero() || len(c.Live(name)) > 0 {
			return nil, nil // nothing to do
		}
		n := r.released(c, old)
		n.Lost = old.Drain(last) == nil
		return &edit{name: name, record: n}, nil
	})
}

func (r *Registrar) released(c *registry.Content, old *registry.StoredRecord) *registry.Record {
	n := r.revise(c, old)
	n.Released = time.Now().UTC()
	return n
}

// unleased lists the plugins that own their names but have no lease. Each is about to get
// one, or a core died before it could release the plugin.
func unleased(c *registry.Content) (out []subject.Plugin) {
	for name, rec := range c.Records {
		if rec.Released.IsZero() && len(c.Live(name)) == 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

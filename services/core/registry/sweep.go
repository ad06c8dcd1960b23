package registry

import (
	"context"
	"errors"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

// sweeper ends the leases of those who are silent. What it knows of time is this
// process's own.
type sweeper struct {
	r *Registrar
	// Silence counts from here at the earliest: before, this core could not have
	// heard, or nobody could have written.
	blind time.Time
	last  time.Time // of the last look
	lost  time.Time // since when there is no bucket to follow; zero while there is
}

func (r *Registrar) sweepLoop() {
	every := r.cfg.Lease / 8
	tick := time.NewTicker(every)
	defer tick.Stop()
	s := &sweeper{r: r, blind: time.Now(), last: time.Now()}
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
			s.sweep(r.ctx, every)
		}
	}
}

func (s *sweeper) sweep(ctx context.Context, every time.Duration) {
	now := time.Now()
	// A process that was stopped, or starved, has not heard what was said meanwhile,
	// and whoever shares its machine may not have spoken.
	if now.Sub(s.last) > max(s.r.cfg.Lease/2, 2*every) {
		s.blind = now
	}
	s.last = now
	since, following := s.r.view.Since()
	if !following || !s.r.bus.Connected() {
		s.blind = now
		s.mend(ctx, now)
		return
	}
	s.lost = time.Time{}
	if since.After(s.blind) {
		s.blind = since
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.pass(ctx, s.r.view.Content()); err != nil && s.r.ctx.Err() == nil {
		// If this core cannot write, heartbeats cannot be answered either.
		s.blind = time.Now()
		s.r.log.Warn("the registry cannot be swept; no lease is ended meanwhile", "error", err)
	}
}

// mend creates the bucket again when it was lost, if core's [bus.Bus.KeepStreams] has not.
func (s *sweeper) mend(ctx context.Context, now time.Time) {
	if s.lost.IsZero() || !s.r.bus.Connected() {
		s.lost = now
	}
	if now.Sub(s.lost) < time.Second {
		return
	}
	s.lost = now
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.r.bus.RestoreStreams(ctx, s.r.cfg.Streams); err != nil && s.r.ctx.Err() == nil {
		s.r.log.Warn("the registry's bucket is not there and cannot be made", "error", err)
	}
}

// pass ends what is over. The first error that is not another core's being faster
// ends the pass.
func (s *sweeper) pass(ctx context.Context, c *registry.Content) error {
	for name, leases := range c.Leases {
		for _, l := range leases {
			if err := s.lease(ctx, c.Records[name], l); err != nil {
				return err
			}
		}
	}
	for name, rec := range c.Records {
		var err error
		switch silent := s.since(rec.Alone); {
		case rec.Alone.IsZero():
		case rec.Released.IsZero():
			if silent > grace {
				err = s.r.release(ctx, name, "")
			}
		case silent > grace && time.Since(rec.Released) > s.r.cfg.Keep && !held(&rec.Record):
			err = s.r.forget(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	for _, m := range s.r.view.Markers(s.r.cfg.Marker) {
		if err := s.r.bucket.Forget(ctx, m.Key, m.Revision); err != nil {
			return err
		}
		s.r.view.Forget(m)
	}
	return nil
}

// since is for how long something was so, as far as this core can tell.
func (s *sweeper) since(at time.Time) time.Duration {
	if at.Before(s.blind) {
		at = s.blind
	}
	return s.last.Sub(at)
}

func (s *sweeper) lease(ctx context.Context, rec *registry.StoredRecord, l *registry.StoredLease) error {
	why := ""
	if silent := s.since(l.Seen); silent > s.r.cfg.Lease {
		why = "it sent no heartbeat for " + silent.Round(time.Millisecond).String()
	} else if rec != nil {
		if d := rec.Drain(l.Instance); d != nil && time.Since(d.At) > s.r.cfg.Drain {
			why = "it has drained for longer than " + s.r.cfg.Drain.String()
		}
	}
	if why == "" {
		return nil
	}
	err := s.r.deleteLease(ctx, l)
	if errors.Is(err, bus.ErrFenceLost) {
		return nil // a heartbeat came, or another core was faster
	}
	if err == nil {
		s.r.log.Warn("the lease of a plugin's replica has ended", "plugin", l.Plugin, "instance", l.Instance, "reason", why)
	}
	return err
}

// held reports whether a person has said something of the plugin that must not be
// forgotten.
func held(rec *registry.Record) bool {
	return rec.Suspended != nil && rec.Suspended.By == registry.ByOperator
}

// forget removes the manifest of a plugin that is long gone.
func (r *Registrar) forget(ctx context.Context, name subject.Plugin) error {
	return r.change(ctx, func(c *registry.Content) (*edit, error) {
		old := c.Records[name]
		if old == nil || old.Released.IsZero() || time.Since(old.Released) <= r.cfg.Keep || held(&old.Record) || len(c.Live(name)) > 0 {
			return nil, nil // nothing is to be done
		}
		r.log.Info("a plugin is forgotten", "plugin", name, "released", old.Released)
		return &edit{name: name}, nil
	})
}

// instances names the replicas of some leases.
func instances(leases []*registry.StoredLease) []subject.Instance {
	out := make([]subject.Instance, len(leases))
	for i, l := range leases {
		out[i] = l.Instance
	}
	return out
}

package registrar

import (
	"context"
	"errors"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

// sweeper ends the leases of silent replicas. It uses only this process's clock.
type sweeper struct {
	r *Registrar
	// blind is the earliest time from which silence counts. Before it, this core could not
	// have received renewals, or no core could have written them.
	blind time.Time
	last  time.Time // of the last sweep
	lost  time.Time // since when there has been no bucket to follow; zero while there is one
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
	// A process that was paused or starved has missed renewals, and plugins on the same
	// machine may not have sent any.
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
		s.r.log.Warn("cannot sweep the registry; no lease is ended meanwhile", "error", err)
	}
}

// mend creates a lost bucket again, unless core's [journal.Journal.KeepStreams] has done so.
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
		s.r.log.Warn("the registry's bucket does not exist and cannot be created", "error", err)
	}
}

// pass ends expired leases and removes expired records and markers. It stops at the first
// error, but not if another core was merely faster.
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

// since returns for how long something has been so, as far as this core can tell.
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
			why = "it has been draining for longer than " + s.r.cfg.Drain.String()
		}
	}
	if why == "" {
		return nil
	}
	err := s.r.deleteLease(ctx, l)
	if errors.Is(err, bus.ErrFenceLost) {
		return nil // a heartbeat arrived, or another core was faster
	}
	if err == nil {
		s.r.log.Warn("the lease of a plugin's replica has ended", "plugin", l.Plugin, "instance", l.Instance, "reason", why)
	}
	return err
}

// held reports whether the record must be kept because an operator suspended the plugin.
func held(rec *registry.Record) bool {
	return rec.Suspended != nil && rec.Suspended.By == registry.ByOperator
}

// forget removes the manifest of a plugin that is long gone.
func (r *Registrar) forget(ctx context.Context, name subject.Plugin) error {
	return r.change(ctx, func(c *registry.Content) (*edit, error) {
		old := c.Records[name]
		if old == nil || old.Released.IsZero() || time.Since(old.Released) <= r.cfg.Keep || held(&old.Record) ||
			len(c.Live(name)) > 0 {
			return nil, nil // nothing to do
		}
		r.log.Info("removing the record of a plugin without replicas", "plugin", name, "released", old.Released)
		return &edit{name: name}, nil
	})
}

// instances returns the replicas of the leases.
func instances(leases []*registry.StoredLease) []subject.Instance {
	out := make([]subject.Instance, len(leases))
	for i, l := range leases {
		out[i] = l.Instance
	}
	return out
}

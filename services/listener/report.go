package listener

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/contract"
)

// The times of reporting.
const (
	reportLook = time.Second     // between two looks at the listeners
	reportWait = 3 * time.Second // for the bus to store one report
)

// Reports returns the state of the listeners.
func (s *Service) Reports() []senses.Report {
	var out []senses.Report
	process := senses.Here()
	for _, l := range s.listeners {
		h := healthOf(l)
		r := senses.Report{
			Listener: l.Name(), Kind: cmp.Or(s.kinds[l.Name()], strings.TrimPrefix(fmt.Sprintf("%T", l), "*")),
			State: string(h.State), Reason: h.Reason, Since: h.Since, Instance: s.deps.Bus.Instance(),
			Process: process,
		}
		if m, ok := l.(contract.Sensing); ok {
			is := m.Media()
			r.Media, r.Agent, r.On, r.Recording, r.Follows = is.Kind, is.Agent, is.On, is.Recording, is.Follows
		}
		out = append(out, r)
	}
	return out
}

// healthOf returns the state of a listener, whatever it can tell.
func healthOf(l contract.Listener) contract.Health {
	if r, ok := l.(contract.HealthReporter); ok {
		return r.Health()
	}
	if f, ok := l.(contract.Finite); ok {
		select {
		case <-f.Done():
			reason := "its source has ended"
			if err := f.Err(); err != nil {
				reason = err.Error()
			}
			return contract.Health{State: contract.StateDown, Reason: reason}
		default:
		}
	}
	if r, ok := l.(interface{ Ready() error }); ok {
		if err := r.Ready(); err != nil {
			return contract.Health{State: contract.StateDegraded, Reason: err.Error()}
		}
	}
	return contract.Health{State: contract.StateOK}
}

// report stores the state of the listeners until stop is called, which removes it.
func (s *Service) report(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() {
		s.sweep(ctx)
		last := map[string]senses.Report{}
		tick := time.NewTicker(reportLook)
		defer tick.Stop()
		for {
			s.reportChanges(ctx, last)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		ended.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportWait)
		defer cancel()
		for _, l := range s.listeners {
			if err := senses.Remove(ctx, s.deps.Bus, l.Name(), s.deps.Bus.Instance()); err != nil {
				s.deps.Logger.Debug("removing the report of a listener", "listener", string(l.Name()), "error", err)
			}
		}
	}
}

// reportChanges stores what is new, and what was stored some time ago.
func (s *Service) reportChanges(ctx context.Context, last map[string]senses.Report) {
	for _, r := range s.Reports() {
		was := last[string(r.Listener)]
		r.At = time.Now().UTC()
		if r.Same(was) && r.At.Sub(was.At) < r.Interval() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, reportWait)
		err := senses.Put(ctx, s.deps.Bus, r)
		cancel()
		if err != nil {
			s.deps.Logger.Debug("reporting a listener", "listener", string(r.Listener), "error", err)
			return // the bus is away
		}
		last[string(r.Listener)] = r
	}
}

// sweep removes what processes with these listeners have left that were killed.
func (s *Service) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	var names []subject.Writer
	for _, l := range s.listeners {
		names = append(names, l.Name())
	}
	if err := senses.Sweep(ctx, s.deps.Bus, names); err != nil {
		s.deps.Logger.Debug("removing old reports", "error", err) // they are forgotten anyway
	}
}

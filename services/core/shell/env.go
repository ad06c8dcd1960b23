package shell

import (
	"context"
	"errors"
	"slices"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/internal/history"
	"skandha.dev/services/internal/registry"
)

// env returns the environment of one decision.
func (s *session) env(delivery uint64) *decide.Env {
	c := s.c
	c.dir.Unclaim(s.claimant) // what the previous decision claimed and did not store
	at := c.plugins.pin.Load()
	agent, provider := c.agent(s.ref.Agent), ""
	if agent != nil {
		provider = agent.Provider
	}
	seen := c.dir.Picks(s.claimant, at.Snapshot, provider)
	return &decide.Env{
		Now: time.Now(), Delivery: delivery, Nonce: nonce, Agent: agent, Tools: seen, Executors: seen,
		Hooks: patient{at.hooks, s}, Policy: c.cfg.Policy, Stats: c.views.ToolUse,
		Version: func() string { return c.cfg.Version },
		Plugins: func() []commands.Plugin { return pluginUse(at.Snapshot) }, HookStats: c.plugins.use, Replay: s.replay,
	}
}

// replayWait bounds reading the log for /replay. The session's loop is blocked
// meanwhile.
const replayWait = 4 * time.Second

// replay renders turns for /replay.
func (s *session) replay(q commands.Turns) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, replayWait)
	defer cancel()
	var turns []history.Turn
	var err error
	s.patiently(func() {
		if q.Turn == "" {
			turns, err = history.Last(ctx, s.c.bus, s.ref, q.Last)
			return
		}
		turns = make([]history.Turn, 1)
		turns[0], err = history.Find(ctx, s.c.bus, s.ref, q.Turn)
	})
	if errors.Is(err, history.ErrNoTurn) {
		return "", commands.ErrNoTurn
	}
	if err != nil {
		return "", err
	}
	return history.Account(turns), nil
}

// pluginUse returns what /plugins lists, in the order of execution.
func pluginUse(s *registry.Snapshot) []commands.Plugin {
	var out []commands.Plugin
	for _, p := range s.Plugins() {
		m := p.Manifest
		u := commands.Plugin{Name: m.Name, Version: m.Version, State: string(p.State), Reason: p.Reason}
		for _, h := range m.Hooks {
			u.Hooks = append(u.Hooks, string(h.Point))
		}
		for _, t := range m.Tools {
			u.Tools = append(u.Tools, t.Name)
		}
		for _, i := range m.Providers {
			u.Other = append(u.Other, "provider "+i.Name)
		}
		if m.Storage != nil {
			u.Other = append(u.Other, "storage")
		}
		for _, l := range slices.Concat(m.Listeners, m.Sensors) {
			u.Other = append(u.Other, "listener "+string(l.Name))
		}
		for _, g := range m.Guides {
			u.Other = append(u.Other, "guide "+g)
		}
		out = append(out, u)
	}
	return out
}

// use returns what /metrics shows of the hooks.
func (p *plugins) use() []commands.HookUse {
	var out []commands.HookUse
	for _, point := range p.info().Points {
		for _, h := range point.Plugins {
			if h.Asked > 0 {
				out = append(out, commands.HookUse{
					Point: string(point.Point), Plugin: string(h.Plugin), Asked: h.Asked, Failed: h.Failed, P50US: h.P50US,
					P99US: h.P99US,
				})
			}
		}
	}
	return out
}

// patient is a hook table whose calls may take longer than AckWait. The budget of
// the hook point bounds each call, so deliveries can be extended meanwhile.
type patient struct {
	*dispatch.HookSet
	s *session
}

// Run implements decide.Hooks. It blocks the session's loop until it returns.
func (p patient) Run(env hook.Envelope) (d hook.Decision) {
	p.s.patiently(func() { d = p.HookSet.RunIn(p.s.ctx, env) })
	return d
}

// Shape implements decide.Hooks.
func (p patient) Shape(env hook.Envelope, fits dispatch.Fits) (d hook.Decision) {
	p.s.patiently(func() { d = p.HookSet.ShapeIn(p.s.ctx, env, fits) })
	return d
}

// Judge implements decide.Hooks.
func (p patient) Judge(env hook.Envelope, shaped hook.Decision) (d hook.Decision) {
	p.s.patiently(func() { d = p.HookSet.JudgeIn(p.s.ctx, env, shaped) })
	return d
}

// Rejudge implements decide.Hooks.
func (p patient) Rejudge(env hook.Envelope) (d hook.Decision) {
	p.s.patiently(func() { d = p.HookSet.RejudgeIn(p.s.ctx, env) })
	return d
}

// patiently runs f, a bounded wait for plugins or the bus, which blocks the session's
// loop. Meanwhile it extends the held deliveries. f must not touch them.
func (s *session) patiently(f func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(extendAfter, func() {
		defer close(ended)
		tick := time.NewTicker(extendAfter)
		defer tick.Stop()
		for {
			s.extend()
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	defer func() {
		if close(done); !timer.Stop() {
			<-ended
		}
	}()
	f()
}

package shell

import (
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
)

// env is the world as decide sees it.
func (s *session) env(delivery uint64) *decide.Env {
	c := s.c
	at := c.plugins.pin.Load()
	agent, seen := c.agent(s.ref.Agent), &picks{Directory: c.dir, registry: at.Snapshot}
	if agent != nil {
		seen.provider = agent.Provider
	}
	return &decide.Env{
		Now: time.Now(), Delivery: delivery, Nonce: nonce, Agent: agent, Tools: seen, Executors: seen,
		Hooks: patient{at.table, s}, Policy: c.cfg.Policy, Stats: c.behind.toolUse,
		Version: func() string { return c.cfg.Version },
	}
}

// patient are hooks that may take longer than a delivery is waited for. Plugins
// are waited for within the budget of their point, so this is no hung loop, and the
// deliveries that the session holds are extended meanwhile: nobody else takes
// them up, nor takes them for poison.
type patient struct {
	*dispatch.Table
	s *session
}

// Run implements decide.Hooks. It is called by the session's loop, which stands
// still until it returns.
func (p patient) Run(env hook.Envelope) hook.Decision {
	done, ended := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(extendAfter, func() {
		defer close(ended)
		tick := time.NewTicker(extendAfter)
		defer tick.Stop()
		for {
			p.s.extend()
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	d := p.Table.RunIn(p.s.ctx, env)
	if close(done); !timer.Stop() {
		<-ended
	}
	return d
}

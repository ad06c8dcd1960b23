package session

import (
	"context"
	"errors"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/history"
)

// embedWait is how long one decision waits for embeddings in all, whatever needs them.
const embedWait = 2 * time.Second

// env returns the environment of one decision.
func (s *session) env(delivery uint64) *decide.Env {
	cfg := &s.set.cfg
	s.Directory.Unclaim(s.claimant) // what the previous decision claimed and did not store
	at := s.Plugins.Current()
	agent, seen := s.Plugins.Agent(s.ref.Agent), s.Directory.Picks(s.claimant, at.Snapshot, s.Plugins.Serving(s.ref.Agent))
	patience := embed.NewPatience(embedWait)
	return &decide.Env{
		Now: time.Now(), Delivery: delivery, Nonce: attempt.Nonce, Agent: agent, Agents: s.Plugins.Agent, Tools: seen, Executors: seen,
		Hooks: patient{at.Hooks, s}, Policy: cfg.Policy, Approvals: cfg.Approvals, Stats: cfg.ToolUse,
		Matcher:   s.matcher(patience),
		Version:   func() string { return cfg.Version },
		Plugins:   func() []commands.Plugin { return plugins.List(at.Snapshot) },
		HookStats: s.Plugins.HookUse, Replay: s.replay, Memory: s.memory(patience), Project: seen.Project(),
		Outside: s.outside(), Undelete: cfg.Undelete,
	}
}

// outside returns what reports whether a writer is from outside.
func (s *session) outside() func(subject.Writer) bool {
	return s.Plugins.Brings(s.Plugins.Current().Snapshot)
}

// matcher returns what matches the agent's tools with requests; nil: nothing does.
func (s *session) matcher(p *embed.Patience) engine.Matcher {
	if s.set.cfg.Matcher == nil {
		return nil
	}
	return patientMatcher{s.set.cfg.Matcher(s.ref.Agent, p), s}
}

// patientMatcher is a matcher that may wait for embeddings longer than AckWait.
type patientMatcher struct {
	engine.Matcher
	s *session
}

// Match implements engine.Matcher.
func (p patientMatcher) Match(in engine.Intent, scenario string, among []tool.Spec, limit int) (r engine.Ranking) {
	p.s.patiently(func() { r = p.Matcher.Match(in, scenario, among, limit) })
	return r
}

// memory returns what agents remember; nil: nothing.
func (s *session) memory(p *embed.Patience) decide.Memory {
	if s.set.cfg.Memory == nil {
		return nil
	}
	return patientMemory{s.set.cfg.Memory(p), s}
}

// patientMemory is a memory whose search may take longer than AckWait.
type patientMemory struct {
	decide.Memory
	s *session
}

// Recall implements decide.Memory.
func (p patientMemory) Recall(ref subject.Ref, input string) (r event.Recalled) {
	p.s.patiently(func() { r = p.Memory.Recall(ref, input) })
	return r
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
			turns, err = history.Last(ctx, s.Bus, s.ref, q.Last)
			return
		}
		turns = make([]history.Turn, 1)
		turns[0], err = history.Find(ctx, s.Bus, s.ref, q.Turn)
	})
	if errors.Is(err, history.ErrNoTurn) {
		return "", commands.ErrNoTurn
	}
	if err != nil {
		return "", err
	}
	return history.Account(turns), nil
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

package shell

import (
	"context"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/core/subagents"
)

func (c *Core) newSubagents() *subagents.Subagents {
	return subagents.New(subagents.Config{
		Bus: c.bus, Log: c.log,
		State: func(ctx context.Context, ref subject.Ref) (*decide.State, error) { return c.loader.Load(ctx, ref, nil) },
		Labels: func(st *decide.State) []string {
			return decide.Labels(st, c.dir.Lookup, c.plugins.Brings(c.plugins.Current().Snapshot))
		},
	})
}

// Cancel implements [outbox.Caller].
func (c *Core) Cancel(ctx context.Context, t event.Task) error {
	return c.agents.Cancel(ctx, t, "the session that it worked for has ended the turn")
}

// runs lists the tools that this core runs for models.
func (c *Core) runs() (tools []runner.Tool) {
	if c.cfg.Schedules {
		tools = append(tools, c.schedule.Runs()...)
	}
	for _, a := range c.cfg.Agents {
		if a.Team != nil {
			return append(tools, c.agents.Tools()...)
		}
	}
	return tools
}

// ownRunnerWait is how long the first causes wait for core's own tools: a turn that begins earlier lacks
// them.
const ownRunnerWait = 3 * time.Second

// awaitRunner waits until core's own tools are offered, if it has any.
func (c *Core) awaitRunner(ctx context.Context) {
	if len(c.runs()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ownRunnerWait)
	defer cancel()
	if err := c.AwaitExecutors(ctx, c.bus.Instance()); err != nil {
		c.log.Warn("core's own tools for models are not offered yet", "error", err)
	}
}

// startRunner offers the tools that core runs for models.
func (c *Core) startRunner() (stop func()) {
	tools := c.runs()
	if len(tools) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := runner.Serve(ctx, c.bus, c.log, tools, subagents.Slots()); err != nil && ctx.Err() == nil {
			c.log.Error("core's own tools for models are not offered", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

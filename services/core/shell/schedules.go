package shell

import (
	"context"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/schedules"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

func (c *Core) newSchedules() *schedules.Schedules {
	return schedules.New(schedules.Config{
		Bus: c.bus, Log: c.log, Known: func(a subject.Agent) bool { return c.cfg.Agents[a] != nil },
		State: func(ctx context.Context, ref subject.Ref) (*decide.State, error) { return c.loader.Load(ctx, ref, nil) },
	})
}

// startSchedules makes schedules occur, and offers the tools.
func (c *Core) startSchedules() (stop func()) {
	stopClock := c.schedule.Start(c.ctx)
	if !c.cfg.Schedules {
		return stopClock
	}
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.schedule.Offer(ctx); err != nil && ctx.Err() == nil {
			c.log.Error("the tools for schedules are not offered", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
		stopClock()
	}
}

func (c *Core) serveSchedules(q *bus.Request) (any, error) {
	var ask coreapi.SchedulesQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	return c.schedule.Query(q.Context(), ask)
}

// scheduleFault returns the fault of schedules that do not occur, or nil.
func (c *Core) scheduleFault() *coreapi.Fault {
	n, agent := c.schedule.Orphans()
	if n == 0 {
		return nil
	}
	return &coreapi.Fault{What: coreapi.FaultSchedules, Message: fmt.Sprintf(
		"%d schedules do not occur, because their agents (such as %s) are not configured; `%s schedules` lists them",
		n, agent, buildinfo.Command())}
}

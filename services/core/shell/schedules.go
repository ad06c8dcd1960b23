package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/schedules"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

func (c *Core) newSchedules() *schedules.Schedules {
	return schedules.New(schedules.Config{
		Bus: c.bus, Log: c.log, Known: func(a subject.Agent) bool { return c.cfg.Agents[a] != nil },
		State: func(ctx context.Context, ref subject.Ref) (*decide.State, error) { return c.loader.Load(ctx, ref, nil) },
		Read:  c.readPage,
	})
}

// readPage reads a page for a watch with the tool for that. Hooks see the call and its result as any
// other. Policy and hooks can deny it, but nothing can ask a person, who was asked about the watch.
func (c *Core) readPage(ctx context.Context, ref subject.Ref, turn, after, address string) (string, error) {
	args, err := json.Marshal(map[string]string{"url": address})
	if err != nil {
		return "", err
	}
	if agent := c.plugins.Agent(ref.Agent); agent == nil || !agent.Offers(pageTool) {
		return "", fmt.Errorf("agent %s does not have the tool %s, which reads it", ref.Agent, pageTool)
	}
	n := internalCall{
		InternalCall: tool.InternalCall{
			Agent: ref.Agent, Session: ref.Session, Turn: turn, Caller: scheduleCaller, Tool: pageTool, Args: args,
		},
		ref: ref, id: "internal-" + attempt.Nonce(), key: attempt.Nonce(), watch: after,
	}
	env := hook.Envelope{Agent: ref.Agent, Session: ref.Session, Turn: turn, Cause: event.SequenceOf(turn), Step: n.id}
	d := c.hook(ctx, env, hook.BeforeAct, hook.ActData{Call: n.id, Tool: pageTool, Args: args})
	if d.Verb != hook.Continue && d.Verb != "" {
		return "", fmt.Errorf("a before_act hook does not let it be read without a person: %s", cmp.Or(d.Reason, string(d.Verb)))
	}
	r := c.internal(ctx, &n)
	switch d := c.hook(ctx, env, hook.AfterAct, hook.AfterActData{Call: n.id, Tool: pageTool, Args: args, Result: r}); d.Verb {
	case hook.Replace:
		var amended hook.AfterActData
		if err := json.Unmarshal(d.Data, &amended); err != nil {
			return "", fmt.Errorf("reading the answer of an after_act hook: %w", err)
		}
		r = amended.Result
	case hook.DenyVerb:
		return "", fmt.Errorf("an after_act hook withholds it: %s", d.Reason)
	}
	if !r.Success {
		return "", errors.New(cmp.Or(r.Error, &tool.Error{Message: "it failed without a reason"}).Message)
	}
	var page struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(r.Data, &page); err != nil {
		return "", fmt.Errorf("reading the result of %s: %w", pageTool, err)
	}
	return page.Content, nil
}

// hook asks the plugins of a point about a call.
func (c *Core) hook(ctx context.Context, env hook.Envelope, at hook.Point, data any) hook.Decision {
	body, err := json.Marshal(data)
	if err != nil {
		return hook.Decision{Verb: hook.DenyVerb, Reason: err.Error()}
	}
	env.Point, env.Data = at, body
	if at == hook.BeforeAct { // all are asked as judges: the call is already in its final form
		return c.Hooks().JudgeIn(ctx, env, hook.Decision{})
	}
	return c.Hooks().RunIn(ctx, env)
}

const (
	pageTool       = "web:fetch"
	scheduleCaller = subject.Writer("schedule")
)

// serveOccur stores the call of a webhook that an agent has created.
func (c *Core) serveOccur(q *bus.Request) (any, error) {
	var call coreapi.Occurrence
	if err := decodeQuery(q.Data, &call); err != nil {
		return nil, err
	}
	return c.schedule.Occur(q.Context(), call)
}

// seeSchedules lists schedules without the keys of webhooks: who has a key can wake the agent.
func (c *Core) seeSchedules(q *bus.Request) (any, error) {
	p, err := c.querySchedules(q, false)
	for i := range p.Schedules {
		p.Schedules[i].Key = ""
	}
	return p, err
}

func (c *Core) serveSchedules(q *bus.Request) (any, error) { return c.querySchedules(q, true) }

func (c *Core) querySchedules(q *bus.Request, change bool) (p coreapi.SchedulesPage, err error) {
	var ask coreapi.SchedulesQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return p, err
		}
	}
	if ask.Action != "" && !change {
		return p, administered(coreapi.VerbSchedules)
	}
	return announced(c, q, ask.Caller, scheduleAct(ask), func() (coreapi.SchedulesPage, error) {
		return c.schedule.Query(q.Context(), ask)
	})
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

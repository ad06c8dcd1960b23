package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/toolschema"
)

// The tools.
const (
	toolCreate = "schedule:create"
	toolList   = "schedule:list"
	toolDelete = "schedule:delete"
)

const (
	toolTimeout = 15 * time.Second
	drain       = 2 * time.Second // for calls that run when the core stops
)

// Tools returns the tools. Each is idempotent: a call that may have run is made again.
func Tools() []tool.Spec {
	return []tool.Spec{
		{
			Name: toolCreate,
			Description: "Wakes you later in this session with a text that you write now, once or repeatedly. Set exactly one of " +
				"at, every, cron and when_idle. The text must be understandable by itself. Repeating a call changes nothing.",
			Args: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{
				"name":{"type":"string","minLength":1,"maxLength":64,"pattern":"^[A-Za-z0-9_-]+$","description":"unique in the session"},
				"text":{"type":"string","minLength":1,"maxLength":%d,"description":"what you are to do then"},
				"at":{"type":"string","description":"once: 2026-11-27T09:00 on the clock of zone, or with an offset"},
				"every":{"type":"string","description":"an interval of 1m or more, such as 90m or 24h; with count 1 it is a delay"},
				"cron":{"type":"string","description":"minute hour day month weekday, such as 30 8 * * mon-fri"},
				"when_idle":{"type":"string","description":"a time without a turn, such as 30m; again only after the user has written again"},
				"zone":{"type":"string","description":"the user's time zone, such as Europe/Berlin; default UTC"},
				"jitter":{"type":"string","description":"the largest random delay of an occurrence, such as 5m"},
				"until":{"type":"string","description":"the end of a repetition, as at"},
				"count":{"type":"integer","minimum":1,"description":"how often it occurs; default no limit"},
				"replace":{"type":"boolean","description":"replace the schedule of the same name"}},
				"required":["name","text"],"additionalProperties":false}`, maxText)),
			Idempotent: true, Permissions: []string{"schedule.create"}, Scope: []string{"name", "text"},
			Risk: tool.RiskMedium, TimeoutMS: toolTimeout.Milliseconds(),
		},
		{
			Name: toolList, Description: "Lists what you have scheduled in this session, with the next occurrences.",
			Args:       json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
			Idempotent: true, Permissions: []string{"schedule.list"}, Risk: tool.RiskLow, TimeoutMS: toolTimeout.Milliseconds(),
		},
		{
			Name: toolDelete, Description: "Deletes a schedule of this session.",
			Args: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":64}},
				"required":["name"],"additionalProperties":false}`),
			Idempotent: true, Permissions: []string{"schedule.delete"}, Scope: []string{"name"}, Risk: tool.RiskLow,
			TimeoutMS: toolTimeout.Milliseconds(),
		},
	}
}

// Offer offers the tools as an executor until ctx ends.
func (s *Schedules) Offer(ctx context.Context) error {
	w := worker{s: s, args: map[string]*toolschema.Validator{}}
	specs := Tools()
	for i, spec := range specs {
		v, err := toolschema.Compile(spec)
		if err != nil {
			return fmt.Errorf("tool %s: %w", spec.Name, err)
		}
		specs[i].Args, w.args[spec.Name] = v.Schema(), v
	}
	return engine.Serve(ctx, s.cfg.Bus, engine.Config{
		Kind: subject.Runner, Service: coreapi.ServiceName, Offer: engine.Offer{Tools: specs}, Work: w.work,
		DrainTimeout: drain, Logger: s.cfg.Log,
	})
}

// worker runs the tools.
type worker struct {
	s    *Schedules
	args map[string]*toolschema.Validator // by tool
}

func (w worker) work(ctx context.Context, q executor.Request, _ func(string)) executor.Answer {
	r := w.result(ctx, q)
	return executor.Answer{Result: &r}
}

func (w worker) result(ctx context.Context, q executor.Request) tool.Result {
	v := w.args[q.Tool.Name]
	if v == nil {
		return tool.Failure(tool.CodeUnknownTool, "core has no tool "+q.Tool.Name)
	}
	args, wrong := v.Validate(q.Tool.Args)
	if len(wrong) > 0 {
		return tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", wrong...)
	}
	ref := subject.Ref{Agent: q.Agent, Session: q.Session}
	var ask request
	if err := json.Unmarshal(args, &ask); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	var out any
	var err error
	switch q.Tool.Name {
	case toolCreate:
		out, err = w.create(ctx, ref, q.Tool.Turn, ask)
	case toolList:
		out, err = w.list(ctx, ref)
	default:
		var was bool
		was, err = w.s.remove(ctx, ref, ask.Name)
		out = map[string]any{"name": ask.Name, "deleted": was}
	}
	switch {
	case errors.Is(err, errInvalid):
		return tool.Failure(tool.CodeInvalidArgs, "nothing was scheduled: "+strings.TrimPrefix(err.Error(), errInvalid.Error()+": "))
	case err != nil:
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return tool.OK(out)
}

// created is the result of schedule:create.
type created struct {
	Created  bool             `json:"created"` // false: it existed
	Now      time.Time        `json:"now"`     // in the schedule's zone
	Schedule coreapi.Schedule `json:"schedule"`
}

func (w worker) create(ctx context.Context, ref subject.Ref, turn string, q request) (any, error) {
	if event.SequenceOf(turn) == 0 {
		return nil, invalid("only a turn can create a schedule")
	}
	r, is, err := w.s.create(ctx, ref, turn, q)
	if err != nil {
		return nil, err
	}
	return created{Created: is, Now: w.s.cfg.Now().In(r.plan.zone).Truncate(time.Second), Schedule: w.s.info(r)}, nil
}

func (w worker) list(ctx context.Context, ref subject.Ref) (any, error) {
	if err := w.s.await(ctx); err != nil {
		return nil, err
	}
	out := []coreapi.Schedule{}
	for _, r := range w.s.list(func(r *record) bool { return r.Ref == ref }) {
		out = append(out, w.s.info(r))
	}
	return map[string]any{"schedules": out}, nil
}

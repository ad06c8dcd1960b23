package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// The tools.
const (
	toolCreate  = "schedule:create"
	toolWebhook = "schedule:webhook"
	toolWatch   = "schedule:watch"
	toolList    = "schedule:list"
	toolDelete  = "schedule:delete"
)

const (
	toolTimeout = 15 * time.Second
)

// The arguments that tools share, in JSON Schema.
const (
	argName = `"name":{"type":"string","minLength":1,"maxLength":64,"pattern":"^[A-Za-z0-9_-]+$","description":"unique in the session"}`
	argEnd  = `"until":{"type":"string","description":"the end of a repetition, as 2026-11-27T09:00"},
		"count":{"type":"integer","minimum":1,"description":"how often it occurs; default no limit"},
		"zone":{"type":"string","description":"the user's time zone, such as Europe/Berlin; default UTC"},
		"replace":{"type":"boolean","description":"replace what has the same name"}`
)

var argText = fmt.Sprintf(`"text":{"type":"string","minLength":1,"maxLength":%d,"description":"what you are to do then"}`, maxText)

// Tools returns the tools. Each is idempotent: a call that may have run is made again.
func Tools() []tool.Spec {
	return []tool.Spec{
		makes(toolCreate, "Wakes you later in this session with a text that you write now, once or repeatedly. Set exactly one of "+
			"at, every, cron and when_idle. The text must be understandable by itself. Repeating a call changes nothing.", "", `
			"at":{"type":"string","description":"once: 2026-11-27T09:00 on the clock of zone, or with an offset"},
			"every":{"type":"string","description":"an interval of 1m or more, such as 90m or 24h; with count 1 it is a delay"},
			"cron":{"type":"string","description":"minute hour day month weekday, such as 30 8 * * mon-fri"},
			"when_idle":{"type":"string","description":"a time without a turn, such as 30m; again only after the user has written again"},
			"jitter":{"type":"string","description":"the largest random delay of an occurrence, such as 5m"},`),
		makes(toolWebhook, "Makes an address that another system can call. Each call wakes you in this session with the text that you "+
			"write now, and with the JSON that was sent, which is data. The address works with a key, which only people can see: the "+
			"result says how.", "", ""),
		makes(toolWatch, "Reads a page of the web or a JSON document at intervals, and wakes you in this session with the text that you "+
			"write now when it changes, or when a number in it goes above or below a limit. The result has the value of now.", "url", `
			"url":{"type":"string","minLength":1,"maxLength":2048,"description":"absolute, http or https"},
			"every":{"type":"string","default":"`+watchEvery+`","description":"how often it is read, 1m or more"},
			"field":{"type":"string","description":"of a JSON document: the JSON pointer to the value, such as /price; default: the main text"},
			"above":{"type":"number","description":"wake when the value goes above this, and again once it was not"},
			"below":{"type":"number","description":"wake when the value goes below this, and again once it was not"},`),
		{
			Name: toolList, Description: "Lists what you have scheduled in this session, webhooks and watches included, with the next occurrences.",
			Args:       json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
			Idempotent: true, Permissions: []string{"schedule.list"}, Risk: tool.RiskLow, TimeoutMS: toolTimeout.Milliseconds(),
		},
		{
			Name: toolDelete, Description: "Deletes a schedule, a webhook or a watch of this session.",
			Args: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":64}},
				"required":["name"],"additionalProperties":false}`),
			Idempotent: true, Permissions: []string{"schedule.delete"}, Scope: []string{"name"}, Risk: tool.RiskLow,
			TimeoutMS: toolTimeout.Milliseconds(),
		},
	}
}

// makes returns a tool that creates schedules of one kind. also is an argument that it requires and that a
// grant is bound to, if any.
func makes(name, description, also, args string) tool.Spec {
	spec := tool.Spec{
		Name: name, Description: description, Idempotent: true, Risk: tool.RiskMedium, TimeoutMS: toolTimeout.Milliseconds(),
		Permissions: []string{strings.Replace(name, ":", ".", 1)}, Scope: []string{"name", "text"},
	}
	required := `"name","text"`
	if also != "" {
		required += `,"` + also + `"`
		spec.Scope = append(spec.Scope, also)
		spec.Permissions = append(spec.Permissions, "network.fetch")
		spec.TimeoutMS += lookWait.Milliseconds()
	}
	spec.Args = json.RawMessage(`{"type":"object","properties":{` + argName + "," + argText + "," + args + argEnd +
		`},"required":[` + required + `],"additionalProperties":false}`)
	return spec
}

// Runs returns the tools with what runs them.
func (s *Schedules) Runs() []runner.Tool {
	specs := Tools()
	out := make([]runner.Tool, len(specs))
	for i, spec := range specs {
		out[i] = runner.Plain(spec, worker{s}.result)
	}
	return out
}

// worker runs the tools.
type worker struct{ s *Schedules }

func (w worker) result(ctx context.Context, q runner.Call) tool.Result {
	var ask request
	err := json.Unmarshal(q.Args, &ask)
	switch q.Name {
	case toolWebhook:
		ask.Webhook = true
	case toolWatch:
		ask.Watch = &coreapi.Watch{}
		err = errors.Join(err, json.Unmarshal(q.Args, ask.Watch))
		ask.Every = cmp.Or(ask.Every, watchEvery)
	}
	if err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	var out any
	switch q.Name {
	case toolCreate, toolWebhook, toolWatch:
		out, err = w.create(ctx, q.Ref, q.Turn, ask)
	case toolList:
		out, err = w.list(ctx, q.Ref)
	default:
		var was bool
		if !subject.Valid(ask.Name) {
			return tool.Failure(tool.CodeInvalidArgs, fmt.Sprintf("nothing was deleted: name is %q, which is no name", ask.Name))
		}
		was, err = w.s.remove(ctx, q.Ref, ask.Name)
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

// created is the result of the tools that create.
type created struct {
	Created  bool             `json:"created"` // false: it existed
	Now      time.Time        `json:"now"`     // in the schedule's zone
	Schedule coreapi.Schedule `json:"schedule"`
	Value    string           `json:"value,omitempty"` // of a watch: what the page shows now
	Note     string           `json:"note,omitempty"`
}

func (w worker) create(ctx context.Context, ref subject.Ref, turn string, q request) (any, error) {
	if event.SequenceOf(turn) == 0 {
		return nil, invalid("only a turn can create a schedule")
	}
	r, is, err := w.s.create(ctx, ref, turn, q)
	if err != nil {
		return nil, err
	}
	out := created{Created: is, Now: w.s.cfg.Now().In(r.plan.zone).Truncate(time.Second), Schedule: w.s.shown(r), Value: r.Seen.Value}
	switch {
	case r.plan.hook:
		out.Note = fmt.Sprintf("The key and the whole address are shown to people by: %s schedules show %s %s %s",
			buildinfo.Command(), ref.Agent, ref.Session, r.Name)
	case r.Seen.Beyond != "":
		out.Note = "The value is already " + r.Seen.Beyond + ": you are woken once it was not, and is so again."
	}
	return out, nil
}

func (w worker) list(ctx context.Context, ref subject.Ref) (any, error) {
	if err := w.s.await(ctx); err != nil {
		return nil, err
	}
	out := []coreapi.Schedule{}
	for _, r := range w.s.list(func(r *record) bool { return r.Ref == ref }) {
		out = append(out, w.s.shown(r))
	}
	return map[string]any{"schedules": out}, nil
}

package mcp

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/event"
	"skandha.dev/services/uibridge/contract"
)

// tasks is the extension, https://github.com/modelcontextprotocol/ext-tasks, as of 2026-07-28.
const tasks = "io.modelcontextprotocol/tasks"

var taskMethods = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// task is a task as the extension describes it. It is a turn, and its id is the turn's handle.
type task struct {
	sdk.ResultBase
	ResultType    string              `json:"resultType"`
	ID            string              `json:"taskId"`
	Status        status              `json:"status"`
	StatusMessage string              `json:"statusMessage,omitempty"`
	Created       time.Time           `json:"createdAt"`
	Updated       time.Time           `json:"lastUpdatedAt"`
	TTL           int64               `json:"ttlMs"`
	Poll          int64               `json:"pollIntervalMs"`
	InputRequests sdk.InputRequestMap `json:"inputRequests,omitempty"`
	Result        *sdk.CallToolResult `json:"result,omitempty"`
}

type status string

// The states of tasks that occur here. A turn that fails has a result that says so: the state failed
// is for errors of the protocol.
const (
	taskWorking   status = "working"
	taskNeedsUser status = "input_required"
	taskCompleted status = "completed"
	taskCancelled status = "cancelled"
)

// taskParams are the parameters of the methods.
type taskParams struct {
	sdk.ParamsBase
	ID        string                     `json:"taskId"`
	Responses map[string]json.RawMessage `json:"inputResponses"`
}

// done is the empty result.
type done struct {
	sdk.ResultBase
	ResultType string `json:"resultType"`
}

func declaresTasks(caps *sdk.ClientCapabilities) bool {
	if caps == nil {
		return false
	}
	_, ok := caps.Extensions[tasks]
	return ok
}

// errNeedsTasks is the error for clients that do not declare the extension.
var errNeedsTasks = &jsonrpc.Error{
	Code: sdk.CodeMissingRequiredClientCapabilities, Message: "missing required client capability",
	Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasks + `":{}}}}`),
}

// taskMethod handles a method of the extension for a turn of the caller's.
type taskMethod[R sdk.Result] func(
	ctx context.Context, c *caller, caps *sdk.ClientCapabilities, f *found, in *taskParams,
) (R, error)

func (d *Handler) addTasks(s *sdk.Server) {
	addTaskMethod(s, d, taskMethods[0], d.getTask)
	addTaskMethod(s, d, taskMethods[1], d.updateTask)
	addTaskMethod(s, d, taskMethods[2], d.cancelTask)
}

func addTaskMethod[R sdk.Result](s *sdk.Server, d *Handler, name string, do taskMethod[R]) {
	err := sdk.AddReceivingCustomMethod(s, name,
		func(ctx context.Context, session *sdk.ServerSession, in *taskParams) (out R, err error) {
			c := callerOf(ctx)
			var caps *sdk.ClientCapabilities
			if p := session.InitializeParams(); p != nil {
				caps = p.Capabilities
			}
			if !declaresTasks(caps) {
				return out, errNeedsTasks
			}
			if in == nil {
				in = &taskParams{}
			}
			f, err := d.find(ctx, c, in.ID)
			if err == nil {
				defer f.turn.Close()
				out, err = do(ctx, c, caps, f, in)
			}
			if err != nil {
				return out, d.wire(err)
			}
			return out, nil
		})
	if err != nil {
		panic(err) // the method is one of the library's: a mistake of the program
	}
}

// working returns the task of an input that core has taken up.
func (d *Handler) working(id string, in *contract.Input) *task {
	return &task{
		ResultType: "task", ID: id, Status: taskWorking, Created: in.Time, Updated: in.Time,
		TTL: d.cfg.TaskLife.Milliseconds(), Poll: d.cfg.Poll.Milliseconds(),
	}
}

// getTask reads the state of a task from the log.
func (d *Handler) getTask(
	ctx context.Context, c *caller, caps *sdk.ClientCapabilities, f *found, _ *taskParams,
) (*task, error) {
	t := d.working(f.String(), f.input)
	t.ResultType = "complete"
	tl, err := d.timeline(ctx, c, f)
	if err != nil {
		return nil, err
	}
	if t.Updated = tl.Started.Add(time.Duration(tl.DurationMS) * time.Millisecond); t.Updated.Before(t.Created) {
		t.Updated = t.Created
	}
	if tl.running() {
		asked := pendingOf(f)
		if able := d.askable(c, caps, asked); len(able) > 0 {
			t.Status, t.InputRequests = taskNeedsUser, questions(able)
		}
		if len(asked) > 0 {
			t.StatusMessage = "waiting for the approval of a person: " + asked[0].ToolName
		}
		return t, nil
	}
	if time.Since(t.Created) > d.cfg.TaskLife {
		return nil, errNoTurn
	}
	return t, d.finish(ctx, c, f, t)
}

// finish reads the result of a turn that has ended.
func (d *Handler) finish(ctx context.Context, c *caller, f *found, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Patience)
	defer cancel()
	for {
		v, _, err := f.turn.Next(ctx)
		if err != nil {
			return err
		}
		end, ok := v.(*contract.TurnEnd)
		if !ok {
			continue
		}
		if x := end.Failed; x != nil && x.Code == event.FailCancelled {
			t.Status, t.StatusMessage = taskCancelled, x.Reason
			return nil
		}
		a := &asking{d: d, c: c, ref: f.ref, input: f.input, handle: f.String()}
		res, answer, err := a.end(end)
		if err != nil {
			return err
		}
		res.StructuredContent = answer
		t.Status, t.Result = taskCompleted, res
		return nil
	}
}

// turnState is how far a turn is.
type turnState struct {
	Outcome    string    `json:"outcome"`
	Started    time.Time `json:"started"`
	DurationMS int64     `json:"duration_ms"`
}

func (t turnState) running() bool { return t.Outcome == "running" || t.Outcome == "queued" }

func (d *Handler) timeline(ctx context.Context, c *caller, f *found) (turnState, error) {
	t, err := call[turnState](ctx, d, c, "getTimeline",
		map[string]any{"agent": f.ref.Agent, "session": f.ref.Session, "turn": turnID(f.input)})
	if hidden(err) {
		err = errNoTurn
	}
	return t, err
}

// updateTask stores the answers to questions. Those that are not asked any more are ignored.
func (d *Handler) updateTask(
	ctx context.Context, c *caller, _ *sdk.ClientCapabilities, f *found, in *taskParams,
) (*done, error) {
	for key, raw := range in.Responses {
		if _, err := d.respond(ctx, c, f, key, func() (out *sdk.ElicitResult, ok bool) {
			err := json.Unmarshal(raw, &out)
			return out, err == nil && out != nil
		}); err != nil {
			return nil, err
		}
	}
	return &done{ResultType: "complete"}, nil
}

// cancelTask asks core to end a turn. It has no effect on one that has ended.
func (d *Handler) cancelTask(
	ctx context.Context, c *caller, _ *sdk.ClientCapabilities, f *found, _ *taskParams,
) (*done, error) {
	tl, err := d.timeline(ctx, c, f)
	if err == nil && tl.running() {
		_, err = d.deps.Backend.Cancel(ctx, c.p,
			contract.Cancellation{Ref: f.ref, Sequence: f.input.Sequence, Reason: "cancelled by the client"})
	}
	if err != nil {
		return nil, err
	}
	return &done{ResultType: "complete"}, nil
}

package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// askInput is the input of the tool ask.
type askInput struct {
	Text    string `json:"text" jsonschema:"what to ask or tell the agent; a text that begins with / is a slash command"`
	Session string `json:"session,omitempty" jsonschema:"the session to continue, of A-Z a-z 0-9 _ -; default: a new one"`
	Agent   string `json:"agent,omitempty" jsonschema:"the agent; default: main"`
	ID      string `json:"id,omitempty" jsonschema:"your id of the input; a repeated one has the earlier call's result"`
}

// waitInput is the input of the tool wait.
type waitInput struct {
	Handle string `json:"handle" jsonschema:"the handle in the result of ask"`
}

// The outcomes of a turn.
const (
	answered = "answered"
	failed   = "failed"
	waiting  = "waiting"
)

// Answer is the result of the tools ask and wait.
type Answer struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session" jsonschema:"continue the conversation with it"`
	Turn    string          `json:"turn,omitempty"`
	Outcome string          `json:"outcome" jsonschema:"answered, failed, or waiting for approval"`
	Code    event.FailCode  `json:"code,omitempty" jsonschema:"why the turn has failed"`
	Text    string          `json:"text" jsonschema:"the answer, or what is wrong"`
	Handle  string          `json:"handle,omitempty" jsonschema:"for the tool wait"`
	Waiting []Waiting       `json:"waiting,omitempty" jsonschema:"the tool calls that wait for approval"`
}

// Waiting is a tool call that waits for the approval of people.
type Waiting struct {
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Args    string    `json:"args" jsonschema:"JSON"`
	Why     string    `json:"why,omitempty"`
	Expires time.Time `json:"expires"`
}

// asking follows one turn for one request.
type asking struct {
	d    *Handler
	c    *caller
	req  *sdk.CallToolRequest
	ref  subject.Ref
	turn *turn.Turn
	owns bool // the turn ends if the client cancels the request

	input  *contract.Input // as the log has it; nil for a command
	handle string
	past   string                      // what comes later is new
	asked  []*contract.ToolCallRequest // since the agent last said that it waits
	open   map[string]*contract.ToolCallRequest
	steps  progress

	stop context.CancelCauseFunc // ends the following
	work sync.WaitGroup
	mu   sync.Mutex
	asks map[string]context.CancelFunc // questions to the client's user
}

// mainAgent is the agent of those who name none.
const mainAgent = "main"

// agentOf returns the agent that a request is for.
func agentOf(p contract.Principal, name string) subject.Agent {
	switch {
	case name != "":
		return subject.Agent(name)
	case len(p.Agents) > 0 && p.Require(contract.See, mainAgent) != nil:
		return p.Agents[0]
	}
	return mainAgent
}

// ask sends an input, and follows its turn.
func (d *Handler) ask(
	ctx context.Context, req *sdk.CallToolRequest, in askInput,
) (*sdk.CallToolResult, *Answer, error) {
	c := callerOf(ctx)
	if req.Params.RequestState != "" { // the client has asked its user
		return d.resume(ctx, req, req.Params.RequestState, true)
	}
	a, err := d.begin(ctx, c, req, in)
	if err != nil {
		return nil, nil, d.seen(err)
	}
	defer a.turn.Close()
	if c.stateless && declaresTasks(req.ClientCapabilities()) && a.turn.Receipt.Turn != "" {
		v, err := a.taken(ctx)
		switch {
		case err != nil:
			return nil, nil, d.seen(err)
		case v != nil:
			return a.end(v)
		}
		c.task = d.working(a.handle, a.input)
		return &sdk.CallToolResult{}, nil, nil
	}
	return a.follow(ctx)
}

// begin sends an input.
func (d *Handler) begin(ctx context.Context, c *caller, req *sdk.CallToolRequest, in askInput) (*asking, error) {
	switch {
	case in.ID == "":
		in.ID = "mcp-" + strings.ToLower(rand.Text())
	case !subject.Valid(in.ID):
		return nil, contract.Invalid("id", "want 1 to 64 characters of A-Z a-z 0-9 _ -")
	case in.Session == "":
		return nil, contract.Invalid("session", "missing; an id is one of a session, so name both")
	}
	if in.Session == "" {
		in.Session = string(request.Fresh())
	}
	ref, err := request.Ref(string(agentOf(c.p, in.Agent)), in.Session)
	if err != nil {
		return nil, err
	}
	t, err := turn.Attach(ctx, d.deps.Backend, c.p, ref, "", "mcp")
	if err != nil {
		return nil, err
	}
	if err := t.Submit(ctx, contract.Submission{Text: in.Text, ID: in.ID, Source: "mcp"}); err != nil {
		t.Close()
		return nil, err
	}
	return d.newAsking(c, req, ref, t, true), nil
}

func (d *Handler) newAsking(c *caller, req *sdk.CallToolRequest, ref subject.Ref, t *turn.Turn, owns bool) *asking {
	return &asking{
		d: d, c: c, req: req, ref: ref, turn: t, owns: owns, past: t.Attached.Until,
		open: map[string]*contract.ToolCallRequest{}, asks: map[string]context.CancelFunc{}, steps: progressOf(req),
	}
}

// taken waits until core has taken up the input. It returns the end of an input that has no turn.
func (a *asking) taken(ctx context.Context) (*contract.TurnEnd, error) {
	patient, cancel := context.WithTimeout(ctx, a.d.cfg.Patience)
	defer cancel()
	for a.input == nil {
		v, id, err := a.turn.Next(patient)
		switch {
		case err != nil && ctx.Err() == nil && patient.Err() != nil:
			return nil, &contract.Error{
				Code: contract.CodeUnavailable, Message: "the input is stored, but core has not taken it up yet; it will: " +
					"call again with the id " + a.turn.Receipt.ID + ", and nothing is asked twice",
			}
		case err != nil:
			return nil, err
		}
		switch v := v.(type) {
		case *contract.Input:
			a.take(v, id)
		case *contract.TurnEnd:
			return v, nil
		}
	}
	return nil, nil
}

// take notes the input, as the log has it.
func (a *asking) take(v *contract.Input, id string) {
	a.input, a.handle = v, handle{a.ref, turn.CommitOf(id), v.InputID}.String()
}

// wait continues to follow a turn.
func (d *Handler) wait(
	ctx context.Context, req *sdk.CallToolRequest, in waitInput,
) (*sdk.CallToolResult, *Answer, error) {
	text := in.Handle
	if req.Params.RequestState != "" {
		text = req.Params.RequestState
	}
	return d.resume(ctx, req, text, false)
}

// resume follows a turn that was begun by an earlier request, after the client has answered what it
// was asked.
func (d *Handler) resume(
	ctx context.Context, req *sdk.CallToolRequest, text string, owns bool,
) (*sdk.CallToolResult, *Answer, error) {
	c := callerOf(ctx)
	f, err := d.find(ctx, c, text)
	if err != nil {
		return nil, nil, d.seen(err)
	}
	defer f.turn.Close()
	a := d.newAsking(c, req, f.ref, f.turn, owns)
	a.input, a.handle = f.input, f.String()
	for key, answer := range req.Params.InputResponses {
		note, err := d.respond(ctx, c, f, key, func() (*sdk.ElicitResult, bool) {
			res, ok := answer.(*sdk.ElicitResult)
			return res, ok
		})
		switch {
		case err != nil:
			return nil, nil, d.seen(err)
		case note != "":
			return a.waits(pendingOf(f), note)
		}
	}
	if len(req.Params.InputResponses) > 0 { // what waits now is another question
		f.turn.Close()
		if f, err = d.find(ctx, c, text); err != nil {
			return nil, nil, d.seen(err)
		}
		defer f.turn.Close()
		a.turn, a.past = f.turn, f.turn.Attached.Until
	}
	return a.follow(ctx)
}

// follow follows the turn to its end, or until it waits for people whom the client cannot ask.
func (a *asking) follow(ctx context.Context) (*sdk.CallToolResult, *Answer, error) {
	outer := ctx
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.work.Wait()
	defer a.stop(nil)
	if a.input != nil { // the turn had begun before
		if res, answer, over := a.waitsAlready(ctx); over {
			return res, answer, nil
		}
	}
	for {
		v, id, err := a.turn.Next(ctx)
		if err == nil {
			if res, answer, over := a.next(ctx, v, id); over {
				return res, answer, nil
			}
			continue
		}
		if left, ok := errors.AsType[*leftError](context.Cause(ctx)); ok {
			return a.waits(a.all(), left.note)
		}
		if outer.Err() != nil {
			err = context.Cause(outer)
			a.gone(outer)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the end was handled
		}
		return nil, nil, a.d.seen(err)
	}
}

// gone cancels the turn if the client does not want its result.
func (a *asking) gone(ctx context.Context) {
	if !a.owns || !a.c.cancelled(a.d.cfg.Linger) {
		return
	}
	seq := a.turn.Receipt.Sequence
	if a.input != nil {
		seq = a.input.Sequence
	}
	_, err := a.d.deps.Backend.Cancel(context.WithoutCancel(ctx), a.c.p,
		contract.Cancellation{Ref: a.ref, Sequence: seq, Reason: "cancelled by the client"})
	if err != nil {
		a.d.log.Warn("cancelling a turn failed", "session", a.ref, "error", err)
	}
}

// next handles a notification. Over means that there is a result.
func (a *asking) next(ctx context.Context, v any, id string) (res *sdk.CallToolResult, answer *Answer, over bool) {
	a.steps.see(ctx, v)
	switch v := v.(type) {
	case *contract.Attached: // the input was accepted before; its turn is replayed
		a.past = v.Until
	case *contract.Input:
		if a.input == nil {
			a.take(v, id)
			return a.waitsAlready(ctx)
		}
	case *contract.ToolCallRequest:
		if turn.Later(id, a.past) {
			a.asked = append(a.asked, v)
		}
	case *contract.ConfirmationResolved:
		a.resolved(v)
	case *contract.StateChange: // follows the last of the turn's requests
		if asked := a.asked; v.State == event.StateConfirming && len(asked) > 0 {
			a.asked = nil
			return a.confirm(ctx, asked)
		}
	case *contract.TurnEnd:
		res, answer, _ = a.end(v)
		return res, answer, true
	}
	return nil, nil, false
}

// waitsAlready handles the requests that waited when the turn was attached to.
func (a *asking) waitsAlready(ctx context.Context) (*sdk.CallToolResult, *Answer, bool) {
	asked := pending(a.turn.Attached.Pending, turnID(a.input))
	if len(asked) == 0 {
		return nil, nil, false
	}
	return a.confirm(ctx, asked)
}

// pending returns the requests of a turn.
func pending(all []contract.ToolCallRequest, turn string) (out []*contract.ToolCallRequest) {
	for i := range all {
		if all[i].Turn == turn {
			out = append(out, &all[i])
		}
	}
	return out
}

func pendingOf(f *found) []*contract.ToolCallRequest {
	return pending(f.turn.Attached.Pending, turnID(f.input))
}

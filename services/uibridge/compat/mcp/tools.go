package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// addTools adds the tools.
func (d *Handler) addTools(s *sdk.Server) {
	no := false
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no}
	sdk.AddTool(s, &sdk.Tool{
		Name: "ask", Title: "Ask an agent",
		Description: "Gives an agent an input and returns its answer. The agent uses its own tools, as its policy allows. " +
			"A cancelled call cancels the agent's turn.",
	}, d.ask)
	sdk.AddTool(s, &sdk.Tool{
		Name: "wait", Title: "Wait for an answer",
		Description: "Returns the answer of an earlier ask that had none yet, for example because a tool call waited for " +
			"approval. A cancelled call does not cancel the turn.",
		Annotations: reads,
	}, d.wait)
	sdk.AddTool(s, &sdk.Tool{
		Name: "cancel", Title: "Cancel a turn",
		Description: "Cancels a turn of a session: the running one unless a turn is named.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, IdempotentHint: true, OpenWorldHint: &no},
	}, d.cancel)
	sdk.AddTool(s, &sdk.Tool{
		Name: "list_sessions", Title: "List sessions", Description: "Lists the sessions, most recently used first.",
		Annotations: reads,
	}, d.listSessions)
	sdk.AddTool(s, &sdk.Tool{
		Name: "read_session", Title: "Read a session",
		Description: "Returns the latest turns of a session, with their inputs, tool calls and answers, and the files that " +
			"belong to it.",
		Annotations: reads,
	}, d.readSession)
	sdk.AddTool(s, &sdk.Tool{
		Name: "list_tools", Title: "List the agent's tools",
		Description: "Lists the tools that agents use. They cannot be called here: ask the agent, whose policy decides " +
			"about each call.",
		Annotations: reads,
	}, d.listTools)
}

type cancelInput struct {
	Session string `json:"session"`
	Agent   string `json:"agent,omitempty" jsonschema:"default: main"`
	Turn    string `json:"turn,omitempty" jsonschema:"as in the result of ask or read_session; default: the running one"`
}

type cancelled struct {
	Turn string `json:"turn" jsonschema:"the turn that is asked to end"`
}

func (d *Handler) cancel(
	ctx context.Context, _ *sdk.CallToolRequest, in cancelInput,
) (*sdk.CallToolResult, cancelled, error) {
	c := callerOf(ctx)
	ref, err := d.known(ctx, c, in.Agent, in.Session)
	if err != nil {
		return nil, cancelled{}, d.seen(err)
	}
	stop := contract.Cancellation{Ref: ref, Reason: "cancelled by the client"}
	if in.Turn != "" {
		if stop.Sequence = sequenceOf(in.Turn); stop.Sequence == 0 {
			return nil, cancelled{}, d.seen(contract.Invalid("turn", "want t<sequence of the input>, such as t17"))
		}
	}
	r, err := d.deps.Backend.Cancel(ctx, c.p, stop)
	if err != nil {
		return nil, cancelled{}, d.seen(err)
	}
	return nil, cancelled{r.Turn}, nil
}

type listToolsInput struct{}

type toolList struct {
	Tools []agentTool `json:"tools"`
}

type agentTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Live        bool   `json:"live" jsonschema:"something that runs it is there now"`
}

func (d *Handler) listTools(
	ctx context.Context, _ *sdk.CallToolRequest, _ listToolsInput,
) (*sdk.CallToolResult, toolList, error) {
	all, err := call[[]agentTool](ctx, d, callerOf(ctx), "listTools", nil)
	if err != nil {
		return nil, toolList{}, d.seen(err)
	}
	if all == nil {
		all = []agentTool{}
	}
	return nil, toolList{all}, nil
}

type listSessionsInput struct {
	Agent  string `json:"agent,omitempty" jsonschema:"default: all that the token may access"`
	Limit  int    `json:"limit,omitempty" jsonschema:"1 to 200; default 50"`
	Cursor string `json:"cursor,omitempty" jsonschema:"the next of the previous page"`
}

// sessionPage is a page of sessions, most recently used first.
type sessionPage struct {
	Sessions []sessionRow `json:"sessions"`
	Next     string       `json:"next,omitempty" jsonschema:"the cursor of the following page, if there is one"`
}

type sessionRow struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Title   string          `json:"title,omitempty"`
	State   string          `json:"state"`
	Turns   int             `json:"turns"`
	Updated string          `json:"updated"`
}

func (d *Handler) listSessions(
	ctx context.Context, _ *sdk.CallToolRequest, in listSessionsInput,
) (*sdk.CallToolResult, sessionPage, error) {
	page, err := d.sessions(ctx, callerOf(ctx), in)
	if err != nil {
		return nil, page, d.seen(err)
	}
	return nil, page, nil
}

func (d *Handler) sessions(ctx context.Context, c *caller, in listSessionsInput) (sessionPage, error) {
	page, err := call[sessionPage](ctx, d, c, "listSessions",
		map[string]any{"agent": in.Agent, "limit": in.Limit, "after": in.Cursor})
	if page.Sessions == nil {
		page.Sessions = []sessionRow{}
	}
	return page, err
}

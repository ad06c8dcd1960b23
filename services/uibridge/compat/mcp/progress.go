package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
)

// progress reports a turn's steps to a client that wants to know, one line each.
type progress struct {
	session *sdk.ServerSession
	token   any
	count   float64
}

// maxLine limits a line, in bytes.
const maxLine = 200

func progressOf(req *sdk.CallToolRequest) progress {
	return progress{session: req.Session, token: req.Params.GetProgressToken()}
}

// see reports a notification if it is a step.
func (p *progress) see(ctx context.Context, v any) {
	line := step(v)
	if p.token == nil || line == "" {
		return
	}
	p.count++
	// A client that has gone is noticed elsewhere
	_ = p.session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: p.token, Progress: p.count, Message: shortLine(line),
	})
}

// step describes a step of a turn in a line; others are empty.
func step(v any) string {
	switch v := v.(type) {
	case *contract.PlanRequested:
		return fmt.Sprintf("asking the model, round %d", v.Round)
	case *contract.ToolCallRequest:
		return "approval is required: " + v.ToolName + " " + string(v.Args)
	case *contract.ToolCall:
		return v.ToolName + " " + string(v.Args)
	case *contract.ToolResult:
		if v.Result.Success {
			return fmt.Sprintf("%s: done in %d ms", v.ToolName, v.DurationMS)
		}
		return v.ToolName + ": failed"
	}
	return ""
}

func shortLine(s string) string { return text.Cut(safetext.Line(s), maxLine) }

package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Extend adds what a test needs to all servers of a handler that serves nobody yet. Its own list of
// resources is that of the library then.
func (d *Handler) Extend(more func(*sdk.Server)) { d.more = more }

// Asks returns a handler of a tool of a test that asks the agent with a text.
func (d *Handler) Asks(text func(args map[string]any) string) sdk.ToolHandlerFor[map[string]any, *Answer] {
	return func(ctx context.Context, req *sdk.CallToolRequest, args map[string]any) (*sdk.CallToolResult, *Answer, error) {
		return d.ask(ctx, req, askInput{Text: text(args)})
	}
}

// ParseURI and ParseHandle report whether the text is valid.
var (
	ParseURI    = func(s string) bool { _, ok := parseURI(s); return ok }
	ParseHandle = func(s string) bool { _, ok := parseHandle(s); return ok }
)

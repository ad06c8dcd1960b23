package mcp

import sdk "github.com/modelcontextprotocol/go-sdk/mcp"

// Extend adds what a test needs to all servers of a handler that serves nobody yet. Its own list of
// resources is that of the library then.
func (d *Handler) Extend(more func(*sdk.Server)) { d.more = more }

// ParseURI and ParseHandle report whether the text is valid.
var (
	ParseURI    = func(s string) bool { _, ok := parseURI(s); return ok }
	ParseHandle = func(s string) bool { _, ok := parseHandle(s); return ok }
)

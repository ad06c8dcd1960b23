// Package diag provides the internal tools log:record, for plugins, and status:query, which
// skandha doctor calls. They are called by service.core.call.<caller> and never offered to a model.
package diag

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Record writes a message to the runner's log.
func Record(log *slog.Logger) tools.Tool {
	return tools.New(tool.Spec{
		Name:        "log:record",
		Description: "Writes a message to the log of the tool runner.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"level":{"enum":["debug","info","warn","error"],"default":"info"},
			"message":{"type":"string","minLength":1,"maxLength":4096}},
			"required":["message"],"additionalProperties":false}`),
		Idempotent: true, Internal: true, Risk: tool.RiskLow, TimeoutMS: 5_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Level   string `json:"level"`
		Message string `json:"message"`
	},
	) tool.Result {
		levels := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}
		// The message is the caller's data: it becomes a value of the record, not its text.
		log.Log(ctx, levels[strings.ToLower(args.Level)], "recorded by a tool call", "message", args.Message,
			"agent", string(c.Agent), "session", string(c.Session), "call", c.ID)
		return tool.OK(nil)
	})
}

// Status answers the runner's status, which must encode to JSON.
func Status(status func() any) tools.Tool {
	return tools.New(tool.Spec{
		Name:        "status:query",
		Description: "Tells how the tool runner is: its slots, how long it runs, its version and tools.",
		Args:        json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Idempotent:  true, Internal: true, Risk: tool.RiskLow, TimeoutMS: 5_000,
	}, func(context.Context, tools.Call, struct{}) tool.Result { return tool.OK(status()) })
}

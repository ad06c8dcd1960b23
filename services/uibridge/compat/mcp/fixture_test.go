package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/uibridge/compat/mcp"
)

// The suite calls tools of fixed names. Those of the extension for tasks are questions to the agent
// here, so that their tasks are turns.

func fixture(h *mcp.Handler) func(*sdk.Server) {
	return func(s *sdk.Server) {
		addContents(s)
		addDiagnostics(s)
		addTurns(s, h)
		addResources(s)
	}
}

// tool adds a tool without arguments.
func tool(s *sdk.Server, name string, do func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
	sdk.AddTool(s, &sdk.Tool{Name: name, Description: "of the suite", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *sdk.CallToolRequest, _ any) (*sdk.CallToolResult, any, error) {
			res, err := do(ctx, r)
			return res, nil, err
		})
}

func says(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func addContents(s *sdk.Server) {
	text := &sdk.TextContent{Text: "This is a simple text response for testing."}
	image := &sdk.ImageContent{Data: []byte("\x89PNG\r\n\x1a\n"), MIMEType: "image/png"}
	embedded := &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
		URI: "test://embedded-resource", MIMEType: "text/plain", Text: "embedded",
	}}
	for name, content := range map[string][]sdk.Content{
		"test_simple_text": {text}, "test_image_content": {image},
		"test_audio_content":     {&sdk.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav"}},
		"test_embedded_resource": {embedded}, "test_multiple_content_types": {text, image, embedded},
	} {
		tool(s, name, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: content}, nil
		})
	}
	s.AddTool(&sdk.Tool{Name: "json_schema_2020_12_tool", Description: "of the suite", InputSchema: json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"}, "email": {"type": "string"}},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": false}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return says("ok"), nil })
	s.AddTool(&sdk.Tool{Name: "test_x_mcp_header", Description: "of the suite", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var in struct{ Region string }
			err := json.Unmarshal(r.Params.Arguments, &in)
			return says("region=" + in.Region), err
		})
}

func addDiagnostics(s *sdk.Server) {
	tool(s, "test_error_handling", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	tool(s, "test_tool_with_progress", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, n := range []float64{0, 50, 100} {
			err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: n, Total: 100,
			})
			if err != nil {
				return nil, err
			}
		}
		return says(fmt.Sprint(r.Params.GetProgressToken())), nil
	})
	tool(s, "test_elicitation", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		res, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(
			`{"type":"object","properties":{"username":{"type":"string"}},"required":["username"]}`)})
		if err != nil {
			return nil, err
		}
		return says(fmt.Sprintf("action=%s, content=%v", res.Action, res.Content)), nil
	})
	tool(s, "test_missing_capability", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if caps := r.ClientCapabilities(); caps != nil && caps.Sampling != nil { //nolint:staticcheck // the suite asks for it
			return says("ok"), nil
		}
		return nil, &jsonrpc.Error{
			Code: sdk.CodeMissingRequiredClientCapabilities, Message: "sampling is needed",
			Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
		}
	})
	for _, name := range []string{"test_streaming_elicitation", "test_logging_tool"} {
		tool(s, name, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return says("ok"), nil })
	}
}

// addTurns adds tools whose calls are turns of the agent.
func addTurns(s *sdk.Server, h *mcp.Handler) {
	add := func(name string, text func(args map[string]any) string) {
		sdk.AddTool(s, &sdk.Tool{
			Name: name, Description: "of the suite", InputSchema: json.RawMessage(`{"type":"object"}`),
		}, h.Asks(text))
	}
	add("slow_compute", func(args map[string]any) string {
		seconds, _ := args["seconds"].(float64)
		return fmt.Sprintf("slow %d ms", int(seconds*1000))
	})
	add("failing_job", func(map[string]any) string { return "fail bad_request" })
	add("confirm_delete", func(map[string]any) string { return needsApproval })
	s.AddTool(&sdk.Tool{Name: "greet", Description: "of the suite", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var in struct{ Name string }
			err := json.Unmarshal(r.Params.Arguments, &in)
			return says("Hello, " + in.Name + "!"), err
		})
}

func addResources(s *sdk.Server) {
	read := func(c sdk.ResourceContents) sdk.ResourceHandler {
		return func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			c := c
			c.URI = r.Params.URI
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&c}}, nil
		}
	}
	s.AddResource(&sdk.Resource{URI: "test://static-text", Name: "text", MIMEType: "text/plain"},
		read(sdk.ResourceContents{MIMEType: "text/plain", Text: "This is the content of the static text resource."}))
	s.AddResource(&sdk.Resource{URI: "test://static-binary", Name: "binary", MIMEType: "image/png"},
		read(sdk.ResourceContents{MIMEType: "image/png", Blob: []byte("\x89PNG\r\n\x1a\n")}))
	const media = "application/json"
	s.AddResourceTemplate(
		&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", MIMEType: media},
		read(sdk.ResourceContents{MIMEType: media, Text: `{"id":"123","templateTest":true,"data":"Data for ID: 123"}`}))
}

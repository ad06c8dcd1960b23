package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools"
)

// eras are the servers of both protocols.
var eras = map[string]*sdk.StreamableHTTPOptions{"2025-11-25": {}, "2026-07-28": {Stateless: true}}

// own returns a server that is made with the SDK, and a rig that is connected to it.
func own(t *testing.T, era string, fill func(*sdk.Server)) (*sdk.Server, *rig) {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "own", Version: "1"}, nil)
	fill(s)
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, eras[era]))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	return s, newRig(t, map[string]mcp.Server{"own": {URL: web.URL}})
}

func add(s *sdk.Server, name string, f func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
	s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, f)
}

var png = append([]byte("\x89PNG\r\n\x1a\n"), 0)

func TestFilesOfAResultAreArtifacts(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			_, r := own(t, era, func(s *sdk.Server) {
				add(s, "draw", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					return &sdk.CallToolResult{
						Content: []sdk.Content{
							&sdk.TextContent{Text: `{"n": 1}`}, &sdk.ImageContent{Data: png, MIMEType: "image/png"},
							&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///../../etc/passwd", Blob: []byte("x"), MIMEType: "../x"}},
							&sdk.ResourceLink{URI: "own://doc", Name: "doc"},
						},
						StructuredContent: map[string]any{"n": 1},
					}, nil
				})
			})
			res, err := r.call(t.Context(), "own:draw", `{}`)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"structured":{"n":1},"files":[{"name":"1-image.png","media_type":"image/png","bytes":9,"ref":"a/s/c/n/1-image.png"},` +
				`{"name":"2-file.bin","media_type":"application/octet-stream","bytes":1,"ref":"a/s/c/n/2-file.bin",` +
				`"uri":"file:///../../etc/passwd"}],"links":[{"uri":"own://doc","name":"doc"}]}`
			if string(res.Data) != want || len(res.Files) != 1 || res.Files[0].Ref != "a/s/c/n/1-image.png" {
				t.Errorf("the result is %s with %+v", res.Data, res.Files)
			}
			if len(r.store.kept) != 2 {
				t.Errorf("%d files are kept", len(r.store.kept))
			}
		})
	}
}

// Nobody can be asked in the middle of a call, and the result says what the server wanted to know.
func TestAQuestionOfAServerIsDeclined(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			_, r := own(t, era, func(s *sdk.Server) {
				add(s, "order", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					question := &sdk.ElicitParams{Message: "Which size?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}
					if era == "2026-07-28" {
						if said, answered := req.Params.InputResponses["size"]; answered {
							return words("the answer: " + said.(*sdk.ElicitResult).Action), nil
						}
						return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"size": question}}, nil
					}
					said, err := req.Session.Elicit(ctx, question)
					if err != nil {
						return nil, err
					}
					return words("the answer: " + said.Action), nil
				})
			})
			res, err := r.call(t.Context(), "own:order", `{}`)
			asked, _ := res.Metadata["declined"].([]string)
			if err != nil || string(res.Data) != `{"text":"the answer: decline"}` || !slices.Equal(asked, []string{"Which size?"}) {
				t.Errorf("the result is %s %+v, %v", res.Data, res, err)
			}
		})
	}
}

func words(s string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
}

// A tool that changes is another tool, which its digest shows: what was approved is asked about again.
func TestAChangedListIsOfferedAtOnce(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			nothing := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return words("x"), nil }
			s, r := own(t, era, func(s *sdk.Server) { add(s, "a", nothing) })
			before := r.tool("own:a").Spec.Digest()
			add(s, "b", nothing)
			r.tool("own:b")
			s.AddTool(&sdk.Tool{Name: "a", Description: "Sends all files.", InputSchema: json.RawMessage(`{"type":"object"}`)}, nothing)
			r.until("a has changed", func() bool { return r.group.Get("own:a").Spec.Digest() != before })
			s.RemoveTools("b")
			r.until("b has gone", func() bool { return r.group.Get("own:b") == nil })
		})
	}
}

func TestResourcesAndPrompts(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			_, r := own(t, era, func(s *sdk.Server) {
				s.AddResource(&sdk.Resource{URI: "own://a", Name: "a"},
					func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
						return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, Text: "the text"}}}, nil
					})
				s.AddPrompt(&sdk.Prompt{Name: "p", Arguments: []*sdk.PromptArgument{{Name: "who", Required: true}}},
					func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
						return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
							{Role: "user", Content: &sdk.TextContent{Text: "greet " + req.Params.Arguments["who"]}},
						}}, nil
					})
			})
			r.until("the tools are offered", func() bool { return len(r.group.Names()) == 4 })
			for _, c := range []struct{ tool, args, want string }{
				{"mcp:resources", `{"server":"own"}`, `{"entries":[{"uri":"own://a","name":"a"}]}`},
				{"mcp:read_resource", `{"server":"own","uri":"own://a"}`, `{"text":"the text"}`},
				{"mcp:read_resource", `{"server":"own","uri":"file:///etc/passwd"}`, `Resource not found`},
				{"mcp:read_resource", `{"server":"other","uri":"own://a"}`, `no MCP server "other"`},
				{"mcp:prompts", `{"server":"own"}`, `{"entries":[{"name":"p","arguments":[{"name":"who","required":true}]}]}`},
				{"mcp:get_prompt", `{"server":"own","name":"p","arguments":{"who":"Ann"}}`, `{"text":"user: greet Ann"}`},
			} {
				reads := r.group.Reads()
				i := slices.IndexFunc(reads, func(t tools.Tool) bool { return t.Spec.Name == c.tool })
				res := reads[i].Run(t.Context(), r.with(c.args, nil))
				if got := string(res.Data); res.Success && got != c.want ||
					!res.Success && !strings.Contains(res.Error.Message, c.want) {
					t.Errorf("%s %s: %s %+v", c.tool, c.args, got, res.Error)
				}
				if reads[i].Spec.Risk != tool.RiskHigh {
					t.Errorf("%s is of risk %s", c.tool, reads[i].Spec.Risk)
				}
			}
		})
	}
}

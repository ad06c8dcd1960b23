package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// The last version of the protocol with sessions, and the first without.
const (
	earlier = "2025-11-25"
	later   = "2026-07-28"
)

// bridge is a bridge that serves MCP to one principal at a time.
type bridge struct {
	*transporttest.Server
	handler *mcp.Handler
	backend *backend.Backend
}

func serve(t testing.TB, b *backend.Backend, cfg mcp.Config) *bridge {
	t.Helper()
	cfg.Lag = 500 * time.Millisecond
	h := mcp.New(cfg, mcp.Deps{
		Backend: b, Artifact: inspect.ReadArtifact(inspect.Deps{Client: b.Client()}), Version: "test",
		Log: slog.New(slog.DiscardHandler),
	})
	s := transporttest.Serve(t, h, 0)
	t.Cleanup(h.Close)
	return &bridge{s, h, b}
}

func start(t testing.TB) *bridge {
	t.Helper()
	return serve(t, turntest.Start(t), mcp.Config{})
}

// connect connects a client of a version of the protocol.
func (b *bridge) connect(t testing.TB, version string, opts sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &opts)
	s, err := c.Connect(natstest.Context(t), &sdk.StreamableClientTransport{
		Endpoint: b.URL + mcp.Path, DisableStandaloneSSE: true,
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the test may have closed it
	return s
}

// result is what a tool returns.
type result struct {
	text    string
	isError bool
	answer  mcp.Answer
	raw     json.RawMessage // the structured content
}

func call(t testing.TB, s *sdk.ClientSession, tool string, args map[string]any) result {
	t.Helper()
	r, err := s.CallTool(natstest.Context(t), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return read(t, r)
}

func read(t testing.TB, r *sdk.CallToolResult) (out result) {
	t.Helper()
	out.isError = r.IsError
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			out.text += text.Text
		}
	}
	if r.StructuredContent != nil {
		raw, err := json.Marshal(r.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		out.raw = raw
		_ = json.Unmarshal(raw, &out.answer) // other tools have other results
	}
	return out
}

// answers answers what a client asks its user.
func answers(decision string) func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision}}, nil
	}
}

// bob is somebody else, with these rights.
func bob(rights ...contract.Right) contract.Principal {
	p := transporttest.Principal(rights...)
	p.Name, p.Writer = "bob", "ui-bob"
	return p
}

// reply is an answer of JSON-RPC over HTTP.
type reply struct {
	status int
	header http.Header
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	body string
}

// post sends a body as it is.
func (b *bridge) post(t testing.TB, body string, headers map[string]string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(natstest.Context(t), http.MethodPost, b.URL+mcp.Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	return do(t, r)
}

func do(t testing.TB, r *http.Request) reply {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: res.StatusCode, header: res.Header, body: string(raw)}
	for line := range bytes.Lines(raw) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			data = line
		}
		_ = json.Unmarshal(data, &out) // of the lines, one is the answer
	}
	return out
}

// request sends a request of the stateless protocol, with the capabilities.
func (b *bridge) request(t testing.TB, method, name string, params map[string]any, capabilities string) reply {
	t.Helper()
	params["_meta"] = map[string]any{
		sdk.MetaKeyProtocolVersion: later, sdk.MetaKeyClientInfo: map[string]any{"name": "test", "version": "1"},
		sdk.MetaKeyClientCapabilities: json.RawMessage(capabilities),
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{"Mcp-Protocol-Version": later, "Mcp-Method": method}
	if name != "" {
		headers["Mcp-Name"] = name
	}
	return b.post(t, string(body), headers)
}

const (
	plain   = `{}`
	tasking = `{"extensions":{"io.modelcontextprotocol/tasks":{}},"elicitation":{"form":{}}}`
)

// end ends a session.
func (b *bridge) end(t testing.TB, session string) {
	t.Helper()
	r, err := http.NewRequestWithContext(natstest.Context(t), http.MethodDelete, b.URL+mcp.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", session)
	if got := do(t, r); got.status != http.StatusNoContent {
		t.Fatalf("the end of a session is answered %d %s", got.status, got.body)
	}
}

// same reports whether two errors are the same.
func (r reply) same(other reply) bool {
	return r.status == other.status && r.Error.Code == other.Error.Code && r.Error.Message == other.Error.Message &&
		string(r.Error.Data) == string(other.Error.Data)
}

package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/mcp"
)

// rude returns a rig with a server on standard input and output that does not keep to the protocol.
func rude(t *testing.T) *rig {
	t.Helper()
	python3, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "python3 is not installed (Debian: apt install python3)")
	}
	script, err := filepath.Abs("testdata/rude.py")
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, map[string]mcp.Server{"rude": {Command: []string{python3, script}, Isolation: mcp.Host}})
}

// state is that of the only server.
func (r *rig) state() mcp.State {
	r.t.Helper()
	all := r.group.States()
	if len(all) != 1 {
		r.t.Fatalf("the servers are %+v", all)
	}
	return all[0]
}

// Entries that are no tools are left out and named, and the others are offered.
func TestAMalformedEntryIsLeftOut(t *testing.T) {
	const list = `[null,` + good + `,{"name":5,"inputSchema":{"type":"object"}},"tool"]`
	stream := raw{tools: list}
	for what, r := range map[string]*rig{
		"stdio": rude(t),
		"JSON":  newRig(t, serve(t, raw{tools: list})),
		"a stream": newRig(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			stream.ServeHTTP(&events{ResponseWriter: w}, req)
		}))),
	} {
		r.until("a tool is offered", func() bool { return len(r.group.Names()) == 1 })
		out := strings.Join(r.state().LeftOut, "\n")
		for _, want := range []string{"tool 1 of the list", "tool 3 of the list", "tool 4 of the list"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: left out is %s, want %s", what, out, want)
			}
		}
	}
}

// events makes an event of an answer to tools/list, after another one.
type events struct{ http.ResponseWriter }

func (e *events) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), `"tools":[`) {
		return e.ResponseWriter.Write(b)
	}
	e.Header().Set("Content-Type", "text/event-stream")
	head, tail, _ := strings.Cut(string(b), `"tools":`)
	_, err := fmt.Fprintf(e.ResponseWriter,
		": hello\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\nid: 7\ndata: %s\ndata: \"tools\":%s\n\n", head, tail)
	return len(b), err
}

// A line that is no message is skipped and named; calls in flight get their answers.
func TestAStrayLineIsSkipped(t *testing.T) {
	r := rude(t)
	target := r.tool("rude:good")
	held := make(chan tool.Result, 1)
	go func() {
		res, _ := target.Call(t.Context(), r.with(`{"how":"hold"}`, nil))
		held <- res
	}()
	if got := r.text("rude:good", `{"how":"stray"}`); got != "after the stray lines" {
		t.Errorf("it says %q", got)
	}
	for len(held) == 0 { // the call may come after the first release
		_ = r.text("rude:good", `{"how":"release"}`)
	}
	if res := <-held; !res.Success {
		t.Errorf("the call in flight: %+v", res.Error)
	}
	if got := r.state().Server; got != "rude server 1 2" {
		t.Errorf("it calls itself %q", got)
	}
	got := strings.Join(r.state().Warnings, "\n")
	if !strings.Contains(got, "2 lines") || !strings.Contains(got, `{"level": "info"}`) || strings.Contains(got, "\x1b") {
		t.Errorf("the warnings are %q", got)
	}
	r.logged("npm WARN deprecated")
}

// An answer that does not say what it answers is none of the server's: the call may have run.
func TestAnAnswerWithoutAnIDIsNoRefusal(t *testing.T) {
	r := rude(t)
	for how, c := range map[string]struct {
		code tool.Code
		says string
	}{
		"null":   {tool.CodeOutcomeUnknown, "it may have run"},
		"list":   {tool.CodeOutcomeUnknown, "it may have run"},
		"error":  {tool.CodeOutcomeUnknown, "it may have run"},
		"tag":    {tool.CodeOutcomeUnknown, "it may have run"},
		"big":    {tool.CodeOutcomeUnknown, "bytes, at most 16777216"},
		"refuse": {tool.CodeFailed, "answered with error -32600: refused"},
	} {
		res, err := r.call(t.Context(), "rude:good", `{"how":"`+how+`"}`)
		if err != nil || res.Success || res.Error.Code != c.code || !strings.Contains(res.Error.Message, c.says) {
			t.Errorf("%s: %+v, %v, %v", how, res, res.Error, err)
		}
	}
	if res, err := r.call(t.Context(), "rude:good", `{"how":"batch"}`); err != nil || !res.Success {
		t.Errorf("in a list of messages: %+v, %v", res, err)
	}
	if log := r.log.String(); strings.Contains(log, "no connection") {
		t.Errorf("the connection was lost:\n%s", log)
	}
}

// A server that writes nothing but stray lines is left.
func TestBabbleEndsTheConnection(t *testing.T) {
	r := rude(t)
	res, err := r.call(t.Context(), "rude:good", `{"how":"babble"}`)
	if err != nil || res.Success || res.Error.Code != tool.CodeOutcomeUnknown || !strings.Contains(res.Error.Message, "lines in a row") {
		t.Errorf("%+v, %v, %v", res, res.Error, err)
	}
}

// Over HTTP, an answer that is too large or without an id claims nothing, and says why.
func TestHTTPAnswersThatCannotBeUsed(t *testing.T) {
	big := strings.Repeat("x", 17<<20)
	for what, c := range map[string]struct {
		call func(w http.ResponseWriter, req request)
		says []string
	}{
		"large": {func(w http.ResponseWriter, req request) {
			reply(w, req.ID, `{"content":[{"type":"text","text":"`+big+`"}]}`)
		}, []string{"more than 16777216 bytes"}},
		"large, and says so": {func(w http.ResponseWriter, req request) {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, req.ID, big)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = io.WriteString(w, body)
		}, []string{"178258", "16777216"}},
		"a large event": {func(w http.ResponseWriter, req request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: ")
			reply(w, req.ID, `{"content":[{"type":"text","text":"`+big+`"}]}`)
			_, _ = io.WriteString(w, "\n\n")
		}, []string{"16777216 bytes"}},
		"null": {func(w http.ResponseWriter, _ request) { reply(w, json.RawMessage("null"), `{"content":[]}`) }, nil},
		"list": {func(w http.ResponseWriter, _ request) { reply(w, json.RawMessage("[1]"), `{"content":[]}`) }, nil},
		"error": {func(w http.ResponseWriter, _ request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`)
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, serve(t, raw{tools: `[` + good + `]`, call: c.call}))
			res, err := r.call(context.WithoutCancel(t.Context()), "evil:good", `{}`)
			if err != nil || res.Success || res.Error.Code != tool.CodeOutcomeUnknown ||
				slices.ContainsFunc(c.says, func(s string) bool { return !strings.Contains(res.Error.Message, s) }) {
				t.Errorf("%+v, %v, %v", res, res.Error, err)
			}
		})
	}
}

// A page instead of an answer is called a page, in one line.
func TestAPageIsNamed(t *testing.T) {
	for media, want := range map[string]string{
		"application/json":  "looking for beginning of value: a web page (HTML); is the url that of an MCP endpoint?",
		"text/event-stream": "malformed line in SSE stream: a web page (HTML); is the url that of an MCP endpoint?",
		"text/html":         `unsupported content type "text/html"`,
	} {
		r := newRig(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html>\n<head><title>Sign in</title></head>\n<body></body></html>")
		})))
		r.logged("no connection")
		if got := r.state().Error; !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", media, got, want)
		}
	}
}

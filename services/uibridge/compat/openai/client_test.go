package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/openai"
	"skandha.dev/services/uibridge/contract"
)

// rig is a handler with OpenAI's client.
type rig struct {
	t      testing.TB
	server *transporttest.Server
	sdk    sdk.Client
}

func serve(t testing.TB, b contract.Backend, cfg openai.Config) *rig {
	t.Helper()
	mux := http.NewServeMux()
	handler := openai.New(cfg, b, voices(b), slog.New(slog.DiscardHandler))
	for _, p := range openai.Patterns() {
		mux.Handle(p, handler)
	}
	s := transporttest.Serve(t, mux, 0)
	return &rig{t, s, sdk.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("token"), option.WithMaxRetries(0))}
}

// voices returns the backend's, if it has any.
func voices(b contract.Backend) openai.Voices {
	v, _ := b.(openai.Voices)
	return v
}

func params(text string) sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{
		Model: "main", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage(text)},
	}
}

func ctx(t testing.TB) context.Context { return natstest.Context(t) }

// stream reads a stream to its end.
func (r *rig) stream(
	t testing.TB, p sdk.ChatCompletionNewParams, opts ...option.RequestOption,
) (*sdk.ChatCompletionAccumulator, error) {
	t.Helper()
	s := r.sdk.Chat.Completions.NewStreaming(ctx(t), p, opts...)
	defer s.Close()
	acc := &sdk.ChatCompletionAccumulator{}
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("a chunk does not fit: %s", s.Current().RawJSON())
		}
	}
	return acc, s.Err()
}

// raw is an HTTP answer.
type raw struct {
	*http.Response
	t     testing.TB
	lines *bufio.Scanner
}

func (r *rig) post(ctx context.Context, t testing.TB, body any, header ...string) *raw {
	t.Helper()
	b, ok := body.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.URL+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return &raw{Response: answer, t: t}
}

// fault is an error in OpenAI's format.
type fault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (f fault) param() string {
	if f.Param == nil {
		return ""
	}
	return *f.Param
}

func (r *raw) fault() fault {
	r.t.Helper()
	var e struct {
		Error *fault `json:"error"`
	}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil || e.Error == nil || e.Error.Type == "" || e.Error.Message == "" {
		r.t.Fatalf("status %d: %s, %v", r.StatusCode, b, err)
	}
	return *e.Error
}

// content returns the text of an answer without stream.
func (r *raw) content() string {
	r.t.Helper()
	var c sdk.ChatCompletion
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || r.StatusCode != http.StatusOK || len(c.Choices) != 1 {
		r.t.Fatalf("status %d: %s, %v", r.StatusCode, b, err)
	}
	return c.Choices[0].Message.Content
}

// chunks returns the data of a stream's events, and the number of comments.
func (r *raw) chunks() (data []string, comments int) { return r.read(func() bool { return false }) }

// untilKept reads until the stream was kept alive; what follows is for chunks.
func (r *raw) untilKept() (data []string) {
	kept := false
	data, _ = r.read(func() bool { kept = kept || strings.HasPrefix(r.lines.Text(), ":"); return kept })
	return data
}

func (r *raw) read(enough func() bool) (data []string, comments int) {
	if r.lines == nil {
		r.lines = bufio.NewScanner(r.Body)
		r.lines.Buffer(nil, 8<<20)
	}
	for r.lines.Scan() {
		if d, ok := strings.CutPrefix(r.lines.Text(), "data: "); ok {
			data = append(data, d)
		} else if strings.HasPrefix(r.lines.Text(), ":") {
			comments++
		}
		if enough() {
			break
		}
	}
	return data, comments
}

func body(text string, more ...map[string]any) map[string]any {
	out := map[string]any{"model": "main", "messages": []any{map[string]any{"role": "user", "content": text}}}
	for _, m := range more {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

var quick = openai.Config{KeepAlive: 20 * time.Millisecond}

package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/compat/openai"
	"skandha.dev/services/uibridge/contract"
)

const asked = `call ` + turntest.Asked + ` {}`

// A stream has the same text as an answer without stream.
func TestAnswers(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	for _, x := range []struct{ text, want string }{
		{"hello", "echo: hello"},
		{"stream 40 words", "word1 "},
		{`call math:evaluate {"expression":"6*7"}`, "42"},
		{`comment let me see :: math:evaluate {"expression":"1+1"}`, "let me see\n\nmath:evaluate: "},
		{`then math:evaluate {"expression":"1+1"} ; math:evaluate {"expression":"2+2"}`, "4"},
		{"text 100000 bytes", strings.Repeat("x", 100000)},
		{"/help", "/reset"},
		{"/etc/passwd is a path", "echo: /etc/passwd is a path"},
		{"//x", "echo: //x"},
	} {
		t.Run(x.text, func(t *testing.T) {
			c, err := r.sdk.Chat.Completions.New(ctx(t), params(x.text))
			if err != nil {
				t.Fatal(err)
			}
			m := c.Choices[0]
			if !strings.Contains(m.Message.Content, x.want) || m.FinishReason != "stop" || m.Message.Role != "assistant" ||
				c.Object != "chat.completion" || c.Model != "main" || c.ID == "" || c.Created == 0 {
				t.Errorf("got %s", c.RawJSON())
			}
			for _, deltas := range []string{"on", "off"} {
				p := params(x.text)
				p.Metadata = map[string]string{"deltas": deltas}
				s, err := r.stream(t, p)
				if err != nil {
					t.Fatal(err)
				}
				if got := s.Choices[0]; got.Message.Content != m.Message.Content || got.FinishReason != "stop" ||
					got.Message.Role != "assistant" {
					t.Errorf("deltas %s: the stream says %q, the answer %q", deltas, got.Message.Content, m.Message.Content)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	p := params("spend 10 tokens")
	c, err := r.sdk.Chat.Completions.New(ctx(t), p)
	if err != nil || c.Usage.PromptTokens != 10 || c.Usage.CompletionTokens != 10 || c.Usage.TotalTokens != 20 {
		t.Errorf("got %+v, %v", c, err)
	}
	if s, err := r.stream(t, p); err != nil || s.Usage.TotalTokens != 0 {
		t.Errorf("usage that nobody asked for: %+v, %v", s.Usage, err)
	}
	p.StreamOptions.IncludeUsage = sdk.Bool(true)
	if s, err := r.stream(t, p); err != nil || s.Usage.TotalTokens != 20 {
		t.Errorf("got %+v, %v", s.Usage, err)
	}
	data, _ := r.post(ctx(t), t,
		body("spend 10 tokens",
			map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}})).chunks()
	if n := len(data); data[n-1] != "[DONE]" || !strings.Contains(data[n-2], `"choices":[]`) ||
		!strings.Contains(data[n-3], `"finish_reason":"stop"`) || !strings.Contains(data[0], `"role":"assistant"`) {
		t.Errorf("the stream is %s", strings.Join(data, "\n"))
	}
}

// A client that sends the whole conversation continues its session; one that changes it
// gets another session; and another principal gets a separate one.
func TestAConversationIsContinued(t *testing.T) {
	b := turntest.Start(t)
	r := serve(t, b, openai.Config{})
	session := func(t *testing.T, p sdk.ChatCompletionNewParams, opts ...option.RequestOption) (name, answer string) {
		t.Helper()
		var h *http.Response
		c, err := r.sdk.Chat.Completions.New(ctx(t), p, append(opts, option.WithResponseInto(&h))...)
		if err != nil {
			t.Fatal(err)
		}
		return h.Header.Get("X-Skandha-Session"), c.Choices[0].Message.Content
	}
	p := sdk.ChatCompletionNewParams{
		Model:    "skandha/main",
		Messages: []sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage("be brief"), sdk.UserMessage("one")},
	}
	first, answer := session(t, p)
	if want := "echo: <earlier>\nsystem: be brief\n</earlier>\n\none"; answer != want {
		t.Errorf("the first answer is %q, want %q", answer, want)
	}
	// clients trim, or do not
	p.Messages = append(p.Messages, sdk.AssistantMessage(" "+answer+"\n"), sdk.UserMessage("two"))
	second, answer := session(t, p)
	if second != first || answer != "echo: two" {
		t.Errorf("it goes on in %s with %q, not in %s", second, answer, first)
	}
	if again, answer := session(t, p); again == first || !strings.Contains(answer, "assistant: ") ||
		!strings.HasSuffix(answer, "</earlier>\n\ntwo") {
		t.Errorf("what is asked again is answered in %s with %q", again, answer)
	}
	p.Messages = append(p.Messages, sdk.AssistantMessage("echo: two"), sdk.UserMessage("three"))
	q := p
	q.Model = "other"
	if other, _ := session(t, q); other == first {
		t.Error("another agent has the same session")
	}
	r.server.As(contract.Principal{Name: "bob", Writer: "ui-bob", Rights: contract.AllRights()})
	if other, _ := session(t, p); other == first {
		t.Error("another principal has the same session")
	}
	if named, answer := session(t, p, option.WithHeader("X-Skandha-Session", first)); named != first ||
		answer != "echo: three" {
		t.Errorf("in the session that was named, %s: %q", named, answer)
	}
	p.Metadata = map[string]string{"session": "mine"}
	if named, answer := session(t, p); named != "mine" || !strings.Contains(answer, "<earlier>") {
		t.Errorf("in a new session that was named, %s: %q", named, answer)
	}
}

// The same request again, with its key, is the same input.
func TestARequestIsTakenOnce(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	one := r.post(ctx(t), t, body("stream 30 words"), "Idempotency-Key", "k1")
	text := one.content()
	for _, stream := range []bool{false, true} {
		again := r.post(ctx(t), t, body("stream 30 words", map[string]any{"stream": stream}), "Idempotency-Key", "k1")
		if again.Header.Get("X-Skandha-Session") != one.Header.Get("X-Skandha-Session") {
			t.Error("again, it is another session")
		}
		if !stream {
			if got := again.content(); got != text {
				t.Errorf("again, it is %q", got)
			}
		} else if data, _ := again.chunks(); data[len(data)-1] != "[DONE]" ||
			!strings.Contains(strings.Join(data, ""), "word30") {
			t.Errorf("again, it is %s", data)
		}
	}
}

func TestTurnsThatFail(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	for _, x := range []struct {
		text string
		code string
		want int
	}{
		{"fail bad_request", "provider_failed", http.StatusBadGateway},
		{"/nonsense", "unknown_command", http.StatusBadRequest},
	} {
		for _, stream := range []bool{false, true} {
			a := r.post(ctx(t), t, body(x.text, map[string]any{"stream": stream}))
			if f := a.fault(); a.StatusCode != x.want || f.Code != x.code || a.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s, stream %t: %d %+v", x.text, stream, a.StatusCode, f)
			}
		}
		var e *sdk.Error
		if _, err := r.sdk.Chat.Completions.New(ctx(t), params(x.text)); !errors.As(err, &e) || e.StatusCode != x.want ||
			e.Code != x.code {
			t.Errorf("the client says %v", err)
		}
	}
}

// While a request is pending a stream is kept alive, and continues after the answer.
func TestSomebodyIsAsked(t *testing.T) {
	b := turntest.Start(t)
	r := serve(t, b, quick)
	ref := subject.Ref{Agent: "main", Session: "asked"}
	feed, err := b.Attach(ctx(t), transporttest.Principal(), contract.Attachment{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	stream := r.post(ctx(t), t, body(asked, map[string]any{"stream": true}), "X-Skandha-Session", "asked")
	q := until[contract.ToolCallRequest](t, feed, contract.OnToolCallRequest)
	before := stream.untilKept()
	answer := contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true, Source: "web"}
	if _, err := b.Confirm(ctx(t), transporttest.Principal(), answer); err != nil {
		t.Fatal(err)
	}
	after, _ := stream.chunks()
	data := slices.Concat(before, after)
	if said := `"reasoning_content":"Waiting for approval of `; strings.Count(strings.Join(data, ""), said) != 1 {
		t.Errorf("it is not said that a person is asked: %s", data)
	}
	if data[len(data)-1] != "[DONE]" || !strings.Contains(strings.Join(data, ""), turntest.Asked+":") {
		t.Errorf("got %s", data)
	}
}

// Without a stream a client cannot see that approval is needed, so the request does not
// wait forever: its answer names where to decide, and the same request gets the result
// later.
func TestARequestWithoutStreamSaysThatAPersonIsAsked(t *testing.T) {
	b := turntest.Start(t)
	r := serve(t, b, openai.Config{KeepAlive: time.Millisecond, DecisionWait: time.Millisecond})
	a := r.post(ctx(t), t, body(asked), "X-Skandha-Session", "asked", "Idempotency-Key", "k1")
	if f := a.fault(); a.StatusCode != http.StatusConflict || f.Code != "confirmation_required" ||
		a.Header.Get("X-Should-Retry") != "false" ||
		!strings.Contains(f.Message, turntest.Asked+" waits") ||
		!strings.Contains(f.Message, "/v1/agents/main/sessions/asked/confirmations") {
		t.Fatalf("it is answered %d %+v", a.StatusCode, f)
	}
	ref := subject.Ref{Agent: "main", Session: "asked"}
	feed, err := b.Attach(ctx(t), transporttest.Principal(), contract.Attachment{Ref: ref, After: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	q := until[contract.ToolCallRequest](t, feed, contract.OnToolCallRequest)
	answer := contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true, Source: "web"}
	if _, err := b.Confirm(ctx(t), transporttest.Principal(), answer); err != nil {
		t.Fatal(err)
	}
	until[contract.TurnEnd](t, feed, contract.OnTurnEnd)
	again := r.post(ctx(t), t, body(asked), "X-Skandha-Session", "asked", "Idempotency-Key", "k1")
	if text, err := io.ReadAll(again.Body); err != nil || again.StatusCode != http.StatusOK ||
		!strings.Contains(string(text), turntest.Asked+":") {
		t.Errorf("after the approval it is answered %d %s, %v", again.StatusCode, text, err)
	}
}

func until[T any](t *testing.T, feed contract.Feed, method string) T {
	t.Helper()
	for {
		n, err := feed.Next(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if n.Method == method {
			var v T
			if err := json.Unmarshal(n.Params, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
}

func TestConfirmationsAreDeniedIfTheClientWants(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	p := params(asked)
	p.Metadata = map[string]string{"confirmations": "deny"}
	for range 2 {
		c, err := r.sdk.Chat.Completions.New(ctx(t), p)
		if err != nil || !strings.Contains(c.Choices[0].Message.Content, turntest.Asked+" failed") {
			t.Errorf("got %v, %v", c, err)
		}
	}
	r.server.As(transporttest.Principal(contract.See, contract.Talk))
	var e *sdk.Error
	if _, err := r.sdk.Chat.Completions.New(ctx(t), p); !errors.As(err, &e) || e.StatusCode != http.StatusForbidden ||
		e.Type != "permission_error" {
		t.Errorf("without the right: %v", err)
	}
}

// The turn of a client that disconnects continues, unless the client wants it cancelled.
func TestAClientGoesAway(t *testing.T) {
	b := turntest.Start(t)
	r := serve(t, b, openai.Config{})
	for _, cancel := range []string{"true", "false"} {
		name := "gone-" + cancel
		ref := subject.Ref{Agent: "main", Session: subject.Session(name)}
		feed, err := b.Attach(ctx(t), transporttest.Principal(), contract.Attachment{Ref: ref})
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		c, leave := context.WithCancel(ctx(t))
		left := make(chan struct{})
		go func() {
			defer close(left)
			p := params(asked)
			p.Metadata = map[string]string{"cancel_on_disconnect": cancel, "session": name}
			if _, err := r.sdk.Chat.Completions.New(c, p); !errors.Is(err, context.Canceled) {
				t.Errorf("a client that disconnected got %v", err)
			}
		}()
		q := until[contract.ToolCallRequest](t, feed, contract.OnToolCallRequest)
		leave()
		<-left
		if cancel == "false" {
			approve(t, b, ref, q)
		}
		end := until[contract.TurnEnd](t, feed, contract.OnTurnEnd)
		if cancelled := end.Failed != nil && end.Failed.Code == "cancelled"; cancelled != (cancel == "true") {
			t.Errorf("cancel_on_disconnect %s: %+v", cancel, end)
		}
	}
}

func approve(t *testing.T, b *backend.Backend, ref subject.Ref, q contract.ToolCallRequest) {
	t.Helper()
	a := contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true}
	if _, err := b.Confirm(ctx(t), transporttest.Principal(), a); err != nil {
		t.Fatal(err)
	}
}

func TestModels(t *testing.T) {
	r := serve(t, turntest.Start(t), openai.Config{})
	ids := func() (out []string) {
		page, err := r.sdk.Models.List(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Data {
			out = append(out, m.ID)
		}
		slices.Sort(out)
		return out
	}
	if got := ids(); !slices.Equal(got, []string{"main", "other"}) {
		t.Errorf("models are %v", got)
	}
	m, err := r.sdk.Models.Get(ctx(t), "main")
	if err != nil || m.ID != "main" || m.Object != "model" || m.OwnedBy != "skandha" {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := r.sdk.Models.Get(ctx(t), "skandha/main"); err != nil {
		t.Error(err)
	}
	var e *sdk.Error
	if _, err := r.sdk.Models.Get(ctx(t), "gpt-5"); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound ||
		e.Code != "model_not_found" {
		t.Errorf("an unknown model: %v", err)
	}
	p := params("x")
	p.Model = "gpt-5"
	if _, err := r.sdk.Chat.Completions.New(ctx(t), p); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound ||
		e.Code != "model_not_found" || e.Param != "model" {
		t.Errorf("a completion of an unknown model: %v", err)
	}
	r.server.As(contract.Principal{
		Name: "x", Writer: "ui-x", Rights: contract.AllRights(), Agents: []subject.Agent{"other"},
	})
	if got := ids(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("one who may reach other sees %v", got)
	}
}

package agui_test

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

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/agui"
	"skandha.dev/services/uibridge/contract"
)

// client speaks AG-UI to a handler.
type client struct {
	t      testing.TB
	server *transporttest.Server
	url    string
}

func newClient(t testing.TB, b contract.Backend, cfg agui.Config) *client {
	t.Helper()
	mux := http.NewServeMux()
	handler := agui.New(cfg, b, slog.New(slog.DiscardHandler))
	for _, p := range agui.Patterns() {
		mux.Handle(p, handler)
	}
	s := transporttest.Serve(t, mux, 0)
	return &client{t, s, s.URL + "/v1/agui/main"}
}

// stream is a run's stream that is being read.
type stream struct {
	t      testing.TB
	body   io.Closer
	lines  *bufio.Scanner
	events []wire
	Code   int
	Error  contract.Error // with another code than 200
}

// ask sends a RunAgentInput.
func (c *client) ask(ctx context.Context, input map[string]any) *stream {
	c.t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(b))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { answer.Body.Close() })
	s := &stream{t: c.t, body: answer.Body, lines: bufio.NewScanner(answer.Body), Code: answer.StatusCode}
	s.lines.Buffer(nil, 8<<20)
	if s.Code != http.StatusOK {
		if err := json.NewDecoder(answer.Body).Decode(&s.Error); err != nil {
			c.t.Fatalf("status %d: %v", s.Code, err)
		}
	} else if ct := answer.Header.Get("Content-Type"); ct != "text/event-stream" {
		c.t.Fatalf("the answer is %s", ct)
	}
	return s
}

// line reads one line, and notes the event that may be in it; false at the end.
func (s *stream) line() (line string, e *wire, ok bool) {
	if !s.lines.Scan() {
		return "", nil, false
	}
	line = s.lines.Text()
	if data, is := strings.CutPrefix(line, "data: "); is {
		e = &wire{}
		if err := json.Unmarshal([]byte(data), e); err != nil {
			s.t.Fatalf("%s: %v", data, err)
		}
		s.events = append(s.events, *e)
	}
	return line, e, true
}

// next reads one event; false at the end.
func (s *stream) next() (wire, bool) {
	for {
		_, e, ok := s.line()
		switch {
		case !ok:
			return wire{}, false
		case e != nil:
			return *e, true
		}
	}
}

// untilKept reads until the stream was kept alive, by a comment.
func (s *stream) untilKept() {
	s.t.Helper()
	for {
		line, _, ok := s.line()
		switch {
		case !ok:
			s.t.Fatalf("the stream ended and was not kept alive: %s", s.types())
		case strings.HasPrefix(line, ":"):
			return
		}
	}
}

// until reads up to an event of the type, or a custom one of the name.
func (s *stream) until(what string) wire {
	s.t.Helper()
	for {
		e, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream ended without %s: %s", what, s.types())
		}
		if e.Type == what || e.Name == what {
			return e
		}
	}
}

// all reads to the end, and checks the order.
func (s *stream) all() []wire {
	s.t.Helper()
	for {
		if _, ok := s.next(); !ok {
			break
		}
	}
	if bad := check(s.events); len(bad) > 0 {
		s.t.Errorf("order: %s\n in %s", strings.Join(bad, "; "), s.types())
	}
	return s.events
}

func (s *stream) types() string { return strings.Join(types(s.events), " ") }

func types(events []wire) []string {
	var out []string
	for _, e := range events {
		name := e.Type
		if e.Name != "" {
			name = e.Name
		}
		out = append(out, name)
	}
	return out
}

func (s *stream) last() wire {
	s.t.Helper()
	all := s.all()
	if len(all) == 0 {
		s.t.Fatalf("status %d, no events: %+v", s.Code, s.Error)
	}
	return all[len(all)-1]
}

// texts returns the texts of messages by id, and their order.
func texts(events []wire) (ids []string, text map[string]string) {
	text = map[string]string{}
	for _, e := range events {
		switch e.Type {
		case "TEXT_MESSAGE_START":
			ids = append(ids, e.MessageID)
		case "TEXT_MESSAGE_CONTENT":
			text[e.MessageID] += e.text()
		}
	}
	return ids, text
}

func input(thread, run, text string, more ...map[string]any) map[string]any {
	in := map[string]any{
		"threadId": thread, "runId": run, "state": map[string]any{}, "tools": []any{}, "context": []any{},
		"forwardedProps": map[string]any{},
		"messages":       []any{map[string]any{"id": "m1", "role": "user", "content": text}},
	}
	for _, m := range more {
		for k, v := range m {
			in[k] = v
		}
	}
	return in
}

// open makes a run stay open while a request is pending.
func open() map[string]any {
	return map[string]any{"forwardedProps": map[string]any{"skandha": map[string]any{"interrupts": false}}}
}

func resume(id, status string, payload map[string]any) map[string]any {
	r := map[string]any{"interruptId": id, "status": status}
	if payload != nil {
		r["payload"] = payload
	}
	return map[string]any{"resume": []any{r}, "messages": []any{}}
}

func ctx(t testing.TB) context.Context { return natstest.Context(t) }

var quick = agui.Config{KeepAlive: 20 * time.Millisecond}

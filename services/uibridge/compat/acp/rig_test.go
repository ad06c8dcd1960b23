package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/acp"
	"skandha.dev/services/uibridge/contract"
)

// client speaks ACP with a server in this process, a line at a time.
type client struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Scanner
	gone chan error
	all  []message
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Code  string `json:"code"`
			Field string `json:"field"`
		} `json:"data"`
	} `json:"error"`
	line string
}

// raw starts a server on a backend.
func raw(t *testing.T, b contract.Backend, cfg acp.Config) *client {
	t.Helper()
	in, write := io.Pipe()
	read, out := io.Pipe()
	c := &client{t: t, in: write, out: bufio.NewScanner(read), gone: make(chan error, 1)}
	c.out.Buffer(nil, 8<<20)
	go func() {
		err := acp.Serve(t.Context(), acp.Options{
			Config: cfg, Agent: "main", Version: "test", Log: slog.New(slog.DiscardHandler),
			Open: func(context.Context) (acp.System, error) {
				return acp.System{
					Backend: b, Principal: transporttest.Principal(), Workspace: "/work/space",
					Store: func(context.Context, string, []byte) error { return nil },
				}, nil
			},
		}, "/work", in, out)
		_ = out.Close() // always nil
		c.gone <- err
	}()
	t.Cleanup(func() {
		_ = read.Close()  // what is still written is of no interest
		_ = write.Close() // may be closed
		if err := <-c.gone; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return c
}

// connect starts a server and initialises.
func connect(t *testing.T, b contract.Backend) *client {
	t.Helper()
	c := raw(t, b, acp.Config{})
	c.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":7}}`)
	if m := c.answer("i"); m.Error != nil || !strings.Contains(m.line, `"protocolVersion":1,`) {
		t.Fatalf("initialize: %s", m.line)
	}
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ask(id, method, params string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, id, method, params))
}

// next reads one message.
func (c *client) next() message {
	c.t.Helper()
	got := make(chan bool, 1)
	go func() { got <- c.out.Scan() }()
	select {
	case ok := <-got:
		if !ok {
			c.t.Fatalf("the output ended: %v", c.out.Err())
		}
	case <-time.After(natstest.Patience):
		c.t.Fatal("nothing more was written")
	}
	m := message{line: c.out.Text()}
	if err := json.Unmarshal(c.out.Bytes(), &m); err != nil {
		c.t.Fatalf("%s: %v", m.line, err)
	}
	c.all = append(c.all, m)
	return m
}

func (c *client) until(is func(message) bool) message {
	c.t.Helper()
	for {
		if m := c.next(); is(m) {
			return m
		}
	}
}

// answer reads up to the answer to a request.
func (c *client) answer(id string) message {
	c.t.Helper()
	want := fmt.Sprintf("%q", id)
	return c.until(func(m message) bool { return m.Method == "" && string(m.ID) == want })
}

func (c *client) session() string {
	c.t.Helper()
	c.ask("new", "session/new", `{"cwd":"/x","mcpServers":[]}`)
	var r struct {
		SessionID string `json:"sessionId"`
	}
	if m := c.answer("new"); json.Unmarshal(m.Result, &r) != nil || r.SessionID == "" {
		c.t.Fatalf("session/new: %s", m.line)
	}
	return r.SessionID
}

func (c *client) prompt(id, session, text string) {
	c.t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ask(id, "session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, session, b))
}

// shown joins the texts of the agent's messages that were read.
func (c *client) shown() string {
	var b strings.Builder
	for _, m := range c.all {
		var p struct {
			Update struct {
				Kind    string `json:"sessionUpdate"`
				Content struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"update"`
		}
		if m.Method == "session/update" && json.Unmarshal(m.Params, &p) == nil && p.Update.Kind == "agent_message_chunk" {
			b.WriteString(p.Update.Content.Text)
		}
	}
	return b.String()
}

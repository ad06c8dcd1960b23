package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/event"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/contract"
)

var eras = []string{earlier, later}

// needsApproval is an input whose turn needs an approval.
const needsApproval = "call " + turntest.Asked + " {}"

func TestAsk(t *testing.T) {
	b := start(t)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var mu sync.Mutex
			var lines []string
			s := b.connect(t, era, sdk.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, r.Params.Message)
				},
			})
			if got := s.InitializeResult().ProtocolVersion; got != era {
				t.Fatalf("%s was negotiated", got)
			}
			if got := call(t, s, "ask", map[string]any{"text": "hello"}); got.text != "echo: hello" ||
				got.answer.Outcome != "answered" || got.answer.Turn == "" || got.answer.Handle == "" {
				t.Errorf("got %+v", got)
			}
			in := &sdk.CallToolParams{Name: "ask", Arguments: map[string]any{
				"text": `call math:evaluate {"expression":"6*7"}`, "session": "s-" + era, "id": "once",
			}}
			in.SetProgressToken("p")
			for range 2 { // the second call has the result of the first
				r, err := s.CallTool(natstest.Context(t), in)
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, r); !strings.Contains(got.text, "42") || string(got.answer.Session) != "s-"+era {
					t.Errorf("got %+v", got)
				}
			}
			natstest.Eventually(t, "the steps are reported", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.Contains(lines, `math:evaluate {"expression":"6*7"}`)
			})
			got := call(t, s, "read_session", map[string]any{"session": "s-" + era})
			if strings.Count(string(got.raw), `"turn":`) != 1 {
				t.Errorf("the input was taken more than once: %s", got.raw)
			}
			for text, code := range map[string]event.FailCode{
				"fail bad_request": event.FailProvider, "/nonsense": event.FailUnknownCommand,
			} {
				if got := call(t, s, "ask", map[string]any{"text": text}); !got.isError || got.answer.Code != code ||
					!strings.Contains(got.text, string(code)) {
					t.Errorf("%s: got %+v", text, got)
				}
			}
			if got := call(t, s, "ask", map[string]any{"text": "/help"}); !strings.Contains(got.text, "/reset") {
				t.Errorf("a command's answer is %+v", got)
			}
			for _, bad := range []map[string]any{
				{},
				{"text": ""},
				{"text": "x", "session": "a/b"},
				{"text": "x", "agent": "nobody"},
				{"text": "x", "session": "s", "id": "a.b"},
				{"text": "x", "id": "a"},
				{"text": "x", "more": 1},
				{"text": strings.Repeat("x", event.MaxTextBytes+1)},
			} {
				if got := call(t, s, "ask", bad); !got.isError || got.text == "" {
					t.Errorf("%v is answered %+v", bad, got)
				}
			}
		})
	}
}

// A client whose user can be asked is asked; the user's answer counts for what was shown.
func TestTheUserIsAsked(t *testing.T) {
	b := start(t)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var shown string
			s := b.connect(t, era, sdk.ClientOptions{
				ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					shown = r.Params.Message
					return answers("approve")(ctx, r)
				},
			})
			got := call(t, s, "ask", map[string]any{"text": needsApproval})
			if got.isError || !strings.Contains(got.text, turntest.Asked+":") || !strings.Contains(shown, turntest.Asked) ||
				!strings.Contains(shown, "the test wants to be asked") {
				t.Errorf("got %+v, shown %q", got, shown)
			}
			denies := b.connect(t, era, sdk.ClientOptions{ElicitationHandler: answers("deny")})
			if got := call(t, denies, "ask", map[string]any{"text": needsApproval}); !strings.Contains(got.text, "failed") {
				t.Errorf("denied: got %+v", got)
			}
			leaves := b.connect(t, era, sdk.ClientOptions{
				ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					return &sdk.ElicitResult{Action: "cancel"}, nil
				},
			})
			if got := call(t, leaves, "ask", map[string]any{"text": needsApproval}); got.answer.Outcome != "waiting" ||
				!strings.Contains(got.text, "dismissed") {
				t.Errorf("dismissed: got %+v", got)
			}
		})
	}
}

// Without a user to ask, the result says that the turn waits, and another call continues.
func TestATurnWaits(t *testing.T) {
	b := start(t)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			s := b.connect(t, era, sdk.ClientOptions{})
			got := call(t, s, "ask", map[string]any{"text": needsApproval, "session": "w-" + era})
			w := got.answer
			if got.isError || w.Outcome != "waiting" || len(w.Waiting) != 1 || w.Waiting[0].Tool != turntest.Asked ||
				!strings.Contains(got.text, w.Handle) {
				t.Fatalf("got %+v", got)
			}
			if again := call(t, s, "wait", map[string]any{"handle": w.Handle}).answer; again.Outcome != "waiting" {
				t.Errorf("it waits no more: %+v", again)
			}
			approve(t, b, "w-"+era)
			if got := call(t, s, "wait", map[string]any{"handle": w.Handle}); !strings.Contains(got.text, turntest.Asked+":") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// approve answers what waits in a session, as the page would.
func approve(t *testing.T, b *bridge, session string) {
	t.Helper()
	ctx, ref := natstest.Context(t), transporttest.Main(session)
	f, err := b.backend.Attach(ctx, transporttest.Principal(), contract.Attachment{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Next(ctx)
	var a contract.Attached
	if err != nil || json.Unmarshal(n.Params, &a) != nil || len(a.Pending) == 0 {
		t.Fatalf("%v: nothing waits: %s", err, n.Params)
	}
	for _, q := range a.Pending {
		r, err := b.backend.Confirm(ctx, transporttest.Principal(), contract.Answer{
			Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true, Source: "web",
		})
		if err != nil || r.Counted == nil || !*r.Counted {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// What somebody else answers first withdraws the question. The second one keeps the turn running until
// the client knows.
func TestAQuestionIsWithdrawn(t *testing.T) {
	b := start(t)
	asked, withdrawn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := b.connect(t, earlier, sdk.ClientOptions{
		ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			first := false
			once.Do(func() { first = true; close(asked) })
			if !first {
				<-withdrawn
				return answers("approve")(ctx, r)
			}
			<-ctx.Done()
			close(withdrawn)
			return nil, ctx.Err()
		},
	})
	done := make(chan result, 1)
	go func() {
		done <- call(t, s, "ask", map[string]any{
			"text": "then " + turntest.Asked + " {} ; " + turntest.Asked + " {}", "session": "both",
		})
	}()
	natstest.Closed(t, "the user is asked", asked)
	approve(t, b, "both")
	natstest.Closed(t, "the question is withdrawn", withdrawn)
	if got := <-done; got.isError || strings.Count(got.text, turntest.Asked+":") == 0 {
		t.Errorf("got %+v", got)
	}
}

// A cancelled call of ask cancels the turn, and one of wait does not.
func TestCancel(t *testing.T) {
	b := start(t)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			s := b.connect(t, era, sdk.ClientOptions{})
			other := b.connect(t, era, sdk.ClientOptions{})
			session := "cancel-" + era
			running := func(ask string, args map[string]any) (stop func()) {
				ctx, cancel := context.WithCancel(natstest.Context(t))
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = s.CallTool(ctx, &sdk.CallToolParams{Name: ask, Arguments: args})
				}()
				return func() { cancel(); natstest.Closed(t, "the call returns", done) }
			}
			outcome := func(want string) mcp.Turn {
				t.Helper()
				var last mcp.Session
				natstest.Eventually(t, "the turn is "+want, func() bool {
					got := call(t, other, "read_session", map[string]any{"session": session})
					last = mcp.Session{}
					return json.Unmarshal(got.raw, &last) == nil && len(last.Turns) > 0 && last.Turns[0].Outcome == want
				})
				return last.Turns[0]
			}
			stop := running("ask", map[string]any{"text": "hang", "session": session, "id": "hang1"})
			outcome("running")
			stop()
			outcome("cancelled")

			stop = running("ask", map[string]any{"text": "hang", "session": session, "id": "hang2"})
			turn := outcome("running").Turn
			if got := call(t, other, "cancel", map[string]any{"session": session, "turn": turn}); got.isError {
				t.Errorf("got %+v", got)
			}
			outcome("cancelled")
			stop()
		})
	}
	s := b.connect(t, earlier, sdk.ClientOptions{})
	w := call(t, s, "ask", map[string]any{"text": needsApproval, "session": "kept"}).answer
	ctx, cancel := context.WithCancel(natstest.Context(t))
	cancel()
	_, _ = s.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: map[string]any{"handle": w.Handle}})
	if again := call(t, s, "wait", map[string]any{"handle": w.Handle}).answer; again.Outcome != "waiting" {
		t.Errorf("a cancelled wait has ended the turn: %+v", again)
	}
}

// A client that ends its session ends its requests, and not the turn.
func TestAnEndedSessionLeavesTheTurn(t *testing.T) {
	b := start(t)
	asked, over := make(chan struct{}), make(chan struct{})
	s := b.connect(t, earlier, sdk.ClientOptions{
		ElicitationHandler: func(ctx context.Context, _ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			close(asked)
			select {
			case <-ctx.Done():
			case <-over: // nobody withdraws a question of an ended session
			}
			return nil, errors.New("not answered")
		},
	})
	go func() {
		_, _ = s.CallTool(natstest.Context(t), &sdk.CallToolParams{
			Name: "ask", Arguments: map[string]any{"text": needsApproval, "session": "left"},
		})
	}()
	defer close(over)
	natstest.Closed(t, "the user is asked", asked)
	req := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"ping"}`, "p")
	if got := b.post(t, req, map[string]string{"Mcp-Session-Id": s.ID()}); got.status != 200 {
		t.Fatalf("the session is answered %d", got.status)
	}
	b.end(t, s.ID())
	if got := b.post(t, req, map[string]string{"Mcp-Session-Id": s.ID()}); got.status != 404 {
		t.Errorf("an ended session is answered %d", got.status)
	}
	approve(t, b, "left")
}

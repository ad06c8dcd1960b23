package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/test/anthropictest"
)

// Escapes of any kind are kept, half a surrogate pair too.
const odd = `It's <so> & \u00e9\/ \ud83d ü\n`

// block is a content block of the latest request, as it was sent.
func blocks(t testing.TB, s *anthropictest.Server, message int) []json.RawMessage {
	t.Helper()
	var raw struct {
		Messages []struct {
			Content []json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(last(t, s).Raw), &raw); err != nil {
		t.Fatal(err)
	}
	return raw.Messages[message].Content
}

// plain undoes the escapes of < > & that encoding/json adds; they mean the same.
func plain(raw json.RawMessage) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(raw))
}

// thinks writes an answer of every kind of block.
func thinks(out *anthropictest.Stream) {
	out.RawThinking(odd)
	out.Redacted("ZGF0YQ==")
	out.Text("I look ")
	out.Text("it up.")
	out.RawCall("toolu_1", "math--evaluate", `{"n":1.50,"big":12345678901234567890}`)
	out.RawThinking("Again.")
	out.Text(" \n")
	out.RawCall("toolu_2", "other", `{}`)
	out.Finish("tool_use", contract.Usage{})
}

func TestBlocksGoBackInTheirOrder(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s, thinking(anthropictest.Model))
	s.Next(s.Reply(thinks))
	resp, text, thoughts, err := generate(t, a, request(t, says("go")))
	if err != nil || resp.TextContent != "I look it up. \n" || text != resp.TextContent ||
		thoughts != "It's <so> & é/ \ufffd ü\nAgain." || len(resp.ToolCalls) != 2 || resp.ToolCalls[0].Tool != "math:evaluate" {
		t.Fatalf("answered %+v, %q, thoughts %q, %v", resp, text, thoughts, err)
	}
	if got := string(resp.ToolCalls[0].Args); got != `{"n":1.50,"big":12345678901234567890}` {
		t.Errorf("the arguments are %s", got)
	}
	failed := result(resp.ToolCalls[1], "no")
	failed.Failed = true
	last := ask(t, a, request(t, says("go"), message(resp), result(resp.ToolCalls[0], "1"), failed, says("and?")))
	if last.TextContent != "echo: and?" {
		t.Errorf("then answered %+v", last)
	}
	wellFormed(t, s)

	sent := blocks(t, s, 1)
	for i, want := range []string{
		`{"type":"thinking","thinking":"` + odd + `","signature":"`, `{"type":"redacted_thinking","data":"ZGF0YQ=="}`,
		`{"type":"text","text":"I look it up."}`, `{"type":"tool_use","id":"toolu_1","name":"math--evaluate","input":{"n":1.50,"big":12345678901234567890}}`,
		`{"type":"thinking","thinking":"Again.","signature":"`, `{"type":"tool_use","id":"toolu_2","name":"other","input":{}}`,
	} {
		if len(sent) != 6 || !strings.HasPrefix(plain(sent[i]), want) {
			t.Fatalf("block %d went back as\n%s, it came as\n%s", i, plain(sent[i]), want)
		}
	}
	for i, want := range []string{
		`{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"1"}]}`,
		`{"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"no"}],"is_error":true}`,
		`{"type":"text","text":"and?"}`,
	} {
		if got := string(blocks(t, s, 2)[i]); got != want {
			t.Errorf("result %d is %s, want %s", i, got, want)
		}
	}
}

// Of a message of another model or provider, or one that a hook has changed, nothing but the
// text and the calls is sent.
func TestWhoseBlocksAreSent(t *testing.T) {
	for _, model := range []string{anthropictest.Model, anthropictest.OldModel} {
		s := anthropictest.New(t)
		a := client(t, s, thinking(model))
		s.Next(s.Reply(thinks))
		whole := message(ask(t, a, request(t, says("go"))))
		other, fewer, final, redacted, renamed, foreign := whole, whole, whole, whole, whole, whole
		fewer.ToolCalls = whole.ToolCalls[:1]
		final.ToolCalls, final.Text = nil, "no"
		redacted.Text = "I look it [hidden]"
		renamed.ToolCalls = []contract.ToolCall{call("toolu_1", "rm", "{}"), whole.ToolCalls[1]}
		foreign.ProviderState = json.RawMessage(`{"gemini_parts":[{"thoughtSignature":"c2ln"}],"blocks":[{"raw":{}}]}`)
		for name, m := range map[string]contract.Message{
			"another model": other, "one call less": fewer, "a final answer": final, "the text redacted": redacted,
			"another tool": renamed, "another provider": foreign,
		} {
			req := request(t, says("go"), m, says("and now?"))
			if name == "another model" {
				req.Model = "another-model"
			}
			ask(t, a, req)
			if raw := last(t, s).Raw; strings.Contains(raw, "thinking\",\"") || strings.Contains(raw, "c2ln") ||
				strings.Contains(raw, "ZGF0YQ") || name == "the text redacted" && strings.Contains(raw, "up.") {
				t.Errorf("%s: sent %s", name, raw)
			}
		}
		wellFormed(t, s)
	}
}

// The API refuses thoughts when something before them has changed. The answer comes without.
func TestAChangedPrefixCostsTheThoughts(t *testing.T) {
	for name, change := range map[string]func(*contract.Request){
		"the system prompt": func(r *contract.Request) { r.System = "Be brief." },
		"the tools":         func(r *contract.Request) { r.Tools[0].Description = "Counts." },
		"no tools":          func(r *contract.Request) { r.Tools = nil },
	} {
		s := anthropictest.New(t)
		a := client(t, s, thinking(anthropictest.Model))
		resp := ask(t, a, request(t, says("call math:evaluate {}")))
		req := request(t, says("call math:evaluate {}"), message(resp), result(resp.ToolCalls[0], "2"))
		change(&req)
		if got := ask(t, a, req).TextContent; got != "math:evaluate: 2" {
			t.Errorf("%s: answered %q", name, got)
		}
		if wrong := s.Wrong(); len(wrong) != 1 || !strings.Contains(wrong[0], "bound to a different conversation") {
			t.Errorf("%s: refused were %q", name, wrong)
		}
		r := last(t, s)
		if r.Thinking == nil || strings.Contains(r.Raw, "signature") || len(s.Seen()) != 3 {
			t.Errorf("%s: sent %s", name, r.Raw)
		}
		if name == "no tools" && (len(r.Tools) != 1 || r.ToolChoice == nil || r.ToolChoice.Type != "none") {
			t.Errorf("sent the tools %+v, %+v", r.Tools, r.ToolChoice)
		}
	}
}

// A prompt that changes from turn to turn costs the thoughts of earlier turns alone.
func TestTheThoughtsOfTheOpenTurnStay(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s, thinking(anthropictest.Model))
	talk := []contract.Message{says("hello")}
	talk = append(talk, message(ask(t, a, request(t, talk...))), says("call math:evaluate {}"))
	req := request(t, talk...)
	req.System = "It is Monday."
	resp := ask(t, a, req)
	req = request(t, append(talk, message(resp), result(resp.ToolCalls[0], "2"))...)
	req.System = "It is Monday."
	ask(t, a, req)
	var kept []int // thoughts in each request
	for _, r := range s.Seen() {
		kept = append(kept, strings.Count(r.Raw, `"signature"`))
	}
	if !slices.Equal(kept, []int{0, 1, 0, 2, 1}) || len(s.Wrong()) != 2 {
		t.Errorf("sent %v thoughts, refused were %q", kept, s.Wrong())
	}
}

// A refusal of something else is not repeated.
func TestOtherRefusalsAreFinal(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s)
	m := message(ask(t, a, request(t, says("hello"))))
	s.Next(status(400, "invalid_request_error", "tools.0: bad"))
	if _, _, _, err := generate(t, a, request(t, says("hello"), m, says("again"))); err == nil || len(s.Seen()) != 2 {
		t.Errorf("%v after %d requests", err, len(s.Seen()))
	}
}

// With a budget, a tool loop must begin with a thought. One that another model began goes on
// without thinking; the next turn thinks again.
func TestALoopWithoutItsThought(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s, thinking(anthropictest.OldModel))
	c := call("call_0", "math:evaluate", `{}`)
	half := 0.5
	loop := []contract.Message{says("add"), calls(c), result(c, "2")}
	req := request(t, loop...)
	req.Temperature = &half
	ask(t, a, req)
	if r := last(t, s); r.Thinking != nil || r.Temperature == nil {
		t.Errorf("in the loop, sent %s", r.Raw)
	}
	req = request(t, append(loop, answers("2"), says("thanks"))...)
	req.Temperature = &half
	ask(t, a, req)
	if r := last(t, s); r.Thinking == nil || r.Thinking.Budget != 2048 || r.Temperature != nil {
		t.Errorf("after it, sent %s", r.Raw)
	}
	wellFormed(t, s)
}

// A model with a budget thinks once a turn; later rounds have no thought.
func TestALongLoopKeepsThinking(t *testing.T) {
	for _, model := range []string{anthropictest.Model, anthropictest.OldModel} {
		s := anthropictest.New(t)
		a := client(t, s, thinking(model))
		talk := []contract.Message{says(`loop math:evaluate {"z":1}`)}
		for range 4 {
			resp := ask(t, a, request(t, talk...))
			talk = append(talk, message(resp), result(resp.ToolCalls[0], "1"))
		}
		if r := last(t, s); r.Thinking == nil || !strings.Contains(r.Raw, `"signature"`) {
			t.Errorf("%s: sent %s", model, r.Raw)
		}
		wellFormed(t, s)
	}
}

func TestHowAModelIsAskedToThink(t *testing.T) {
	enabled, adaptive := `{"type":"enabled","budget_tokens":2048}`, `{"type":"adaptive","display":"summarized"}`
	for model, want := range map[string]string{
		"claude-3-7-sonnet-20250219": enabled, "claude-sonnet-4-20250514": enabled, "claude-opus-4-5@20251101": enabled,
		"anthropic.claude-opus-4-6-v1": enabled, "claude-2.1": enabled, "kimi-k3": enabled, "claude-opus-4-7": adaptive,
		"claude-haiku-5-5": adaptive, "claude-mythos-preview": adaptive, "claude-fable-6": adaptive, "claude-opus-10-1": adaptive,
	} {
		s := anthropictest.New(t)
		s.Next(s.Reply(func(out *anthropictest.Stream) { out.Text("x"); out.Finish("end_turn", contract.Usage{}) }))
		req, warm := request(t, says("hello")), 1.5
		req.Model, req.Temperature = model, &warm
		ask(t, client(t, s, thinking(model)), req)
		if r := last(t, s); !strings.Contains(r.Raw, `"thinking":`+want) || r.Temperature != nil {
			t.Errorf("%s: sent %s", model, r.Raw)
		}
		s.Next(s.Reply(func(out *anthropictest.Stream) { out.Text("x"); out.Finish("end_turn", contract.Usage{}) }))
		ask(t, client(t, s), req)
		if r := last(t, s); r.Thinking != nil || (r.Temperature != nil) != (want == enabled) ||
			r.Temperature != nil && *r.Temperature != 1 {
			t.Errorf("%s, not asked to think: sent %s", model, r.Raw)
		}
	}
}

func TestTheLimitIncludesThinking(t *testing.T) {
	s := anthropictest.New(t)
	for _, c := range []struct{ configured, budget, asked, limit, thinks int }{
		{0, 0, 0, 16384, 0},
		{0, 2048, 0, 18432, 2048},
		{4096, 2048, 0, 4096, 2048},
		{0, 2048, 2500, 2500, 1476},
		{0, 2048, 1500, 1500, 0},
		{0, 0, 100, 100, 0},
	} {
		a := client(t, s, func(cfg *anthropic.Config) {
			cfg.Model, cfg.MaxTokens, cfg.ThinkingTokens = anthropictest.OldModel, c.configured, c.budget
		})
		req := request(t, says("hello"))
		req.MaxTokens = c.asked
		ask(t, a, req)
		r, thinks := last(t, s), 0
		if r.Thinking != nil {
			thinks = r.Thinking.Budget
		}
		if *r.MaxTokens != c.limit || thinks != c.thinks {
			t.Errorf("%+v: sent max_tokens %d, budget %d", c, *r.MaxTokens, thinks)
		}
	}
	wellFormed(t, s)
}

func TestStatesAreBounded(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s, thinking(anthropictest.Model), func(c *anthropic.Config) { c.Limits.StateBytes = 2000 })
	s.Next(s.Reply(func(out *anthropictest.Stream) {
		out.RawThinking("short")
		out.Text(strings.Repeat("x", 5000)) // is no part of the state
		out.Finish("end_turn", contract.Usage{})
	}), s.Reply(func(out *anthropictest.Stream) {
		out.RawThinking(strings.Repeat("long ", 1000))
		out.Text("x")
		out.Finish("end_turn", contract.Usage{})
	}))
	if resp := ask(t, a, request(t, says("go"))); resp.ProviderState == nil || len(resp.ProviderState) > 400 {
		t.Errorf("the state has %d bytes", len(resp.ProviderState))
	}
	if resp := ask(t, a, request(t, says("go"))); resp.ProviderState != nil {
		t.Errorf("the state has %d bytes", len(resp.ProviderState))
	}
}

// A thought without a signature is of no use, and a block of the future is kept only if it is
// complete.
func TestWhatIsNoState(t *testing.T) {
	s := anthropictest.New(t)
	for want, write := range map[string]func(out *anthropictest.Stream){
		"": func(out *anthropictest.Stream) {
			out.Open("thinking", `{"type":"thinking","thinking":"I think"}`)
		},
		" ": func(out *anthropictest.Stream) {
			out.Open("new", `{"type":"new","x":1}`)
			out.Delta(`{"type":"new_delta","x":2}`)
		},
		`{"type":"new","x":1}`: func(out *anthropictest.Stream) { out.Open("new", `{"type":"new","x":1}`) },
	} {
		s.Next(s.Reply(func(out *anthropictest.Stream) {
			write(out)
			out.Text("x")
			out.Finish("end_turn", contract.Usage{})
		}))
		state := string(ask(t, client(t, s), request(t, says("go"))).ProviderState)
		if (state == "") != (strings.TrimSpace(want) == "") || !strings.Contains(state, strings.TrimSpace(want)) {
			t.Errorf("%s: the state is %s", want, state)
		}
	}
}

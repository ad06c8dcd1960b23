package offline_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/offline"
)

// everything is what a complete installation offers.
var everything = tools(
	"math:evaluate", "time:now", "file_system:list", "file_system:read_file", "file_system:write_file",
	"file_system:append_file", "sandbox_fs:remove", "notes:add", "notes:search", "python:execute",
	"schedule:create", "schedule:list", "schedule:delete",
)

func tools(names ...string) []contract.ToolSpec {
	var out []contract.ToolSpec
	for _, n := range names {
		out = append(out, contract.ToolSpec{Name: n, Args: json.RawMessage(`{"type":"object"}`)})
	}
	return out
}

func model(t testing.TB, rules []byte) *offline.Adapter {
	t.Helper()
	a, err := offline.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func conversation(t testing.TB, messages ...contract.Message) []json.RawMessage {
	t.Helper()
	var raw []json.RawMessage
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b)
	}
	return raw
}

func user(text string) contract.Message {
	return contract.Message{Role: contract.RoleUser, Text: text}
}

func ask(
	t testing.TB, a *offline.Adapter, offered []contract.ToolSpec, messages ...contract.Message,
) contract.Response {
	t.Helper()
	req := contract.Request{Messages: conversation(t, messages...), Tools: offered}
	resp, err := a.Generate(t.Context(), req, func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// answered extends a conversation by the model's calls and their results.
func answered(resp contract.Response, results ...contract.Message) []contract.Message {
	out := []contract.Message{{Role: contract.RoleAssistant, ToolCalls: resp.ToolCalls}}
	for i, r := range results {
		r.Role, r.CallID, r.Tool = contract.RoleTool, resp.ToolCalls[i].ID, resp.ToolCalls[i].Tool
		out = append(out, r)
	}
	return out
}

func say(calls []contract.ToolCall) string {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(c.Tool + " " + string(c.Args))
	}
	return b.String()
}

func TestRequestsBecomeCalls(t *testing.T) {
	a := model(t, nil)
	for _, c := range []struct{ message, want string }{
		{"what is 12*(3+4)?", `math:evaluate {"expression":"12*(3+4)"}`},
		{"What's 2 + 2", `math:evaluate {"expression":"2 + 2"}`},
		{"2+2", `math:evaluate {"expression":"2+2"}`},
		{"(1 + 2) * 3 =", `math:evaluate {"expression":"(1 + 2) * 3"}`},
		{"calculate sqrt(2) * 10", `math:evaluate {"expression":"sqrt(2) * 10"}`},
		{"Could you please calculate 7 times 6?", `math:evaluate {"expression":"7 * 6"}`},
		{"how much is 10 divided by 4?", `math:evaluate {"expression":"10 / 4"}`},
		{"what is 15% of 80?", `math:evaluate {"expression":"15 / 100 * 80"}`},
		{"compute 2^10 please", `math:evaluate {"expression":"2^10"}`},
		{"what time is it?", `time:now {"timezone":"UTC"}`},
		{"What time is it in Europe/Vienna?", `time:now {"timezone":"Europe/Vienna"}`},
		{"what time is it in New York right now?", `time:now {"timezone":"America/New_York"}`},
		{"what's the time in Tokyo", `time:now {"timezone":"Asia/Tokyo"}`},
		{"what day is it?", `time:now {"timezone":"UTC"}`},
		{"list files", `file_system:list {"path":"."}`},
		{"Hey Skandha, list the files in docs", `file_system:list {"path":"docs"}`},
		{"ls src", `file_system:list {"path":"src"}`},
		{"read notes.txt", `file_system:read_file {"path":"notes.txt"}`},
		{"what is in hello.txt?", `file_system:read_file {"path":"hello.txt"}`},
		{"what does docs/readme.md say?", `file_system:read_file {"path":"docs/readme.md"}`},
		{"show me the file README", `file_system:read_file {"path":"README"}`},
		{"write hello to hello.txt", `file_system:write_file {"path":"hello.txt","content":"hello"}`},
		{`save "buy milk and eggs" to todo.txt`, `file_system:write_file {"path":"todo.txt","content":"buy milk and eggs"}`},
		{"create a file called a.md with the text: # A", `file_system:write_file {"path":"a.md","content":"# A"}`},
		{"overwrite hello.txt with bye", `file_system:write_file {"path":"hello.txt","content":"bye","mode":"overwrite"}`},
		{"append one more line to log.txt", `file_system:append_file {"path":"log.txt","content":"one more line\n"}`},
		{"delete hello.txt", `sandbox_fs:remove {"path":"hello.txt"}`},
		{"remember that the key is under the mat", `notes:add {"text":"the key is under the mat"}`},
		{
			"remind me in 10 minutes to call Ada's mother!",
			`schedule:create {"name":"reminder-call-ada-s-mother","text":"call Ada's mother","every":"10m","count":1}`,
		},
		{"list my reminders", `schedule:list {}`},
		{"cancel the reminder reminder-call-ada", `schedule:delete {"name":"reminder-call-ada"}`},
		{"what do you remember?", `notes:search {"query":""}`},
		{"What do you remember about the key?", `notes:search {"query":"the key"}`},
		{"run python: print(1+1)", `python:execute {"code":"print(1+1)"}`},
		{"run this python code:\n```python\nprint('x')\n```", `python:execute {"code":"print('x')\n"}`},
		{
			"what time is it and what is 2+2?",
			`time:now {"timezone":"UTC"} | math:evaluate {"expression":"2+2"}`,
		},
		{
			"what time is it in Vienna and what is 2+2?",
			`time:now {"timezone":"Europe/Vienna"} | math:evaluate {"expression":"2+2"}`,
		},
		{
			"what do you remember about tea and what time is it in New York?",
			`notes:search {"query":"tea"} | time:now {"timezone":"America/New_York"}`,
		},
		{"what do you remember about tea and cake?", `notes:search {"query":"tea and cake"}`},
		{"remember that tea and 2+2 are fine", `notes:add {"text":"tea and 2+2 are fine"}`},
		{"calculate 2+2 and tell me the time", `math:evaluate {"expression":"2+2"} | time:now {"timezone":"UTC"}`},
		{"write salt and pepper to list.txt", `file_system:write_file {"path":"list.txt","content":"salt and pepper"}`},
		{
			"what is 1+1? and what is 2+2? and what time is it in Paris?",
			`math:evaluate {"expression":"1+1"} | math:evaluate {"expression":"2+2"} | time:now {"timezone":"Europe/Paris"}`,
		},
	} {
		t.Run(c.message, func(t *testing.T) {
			resp := ask(t, a, everything, user(c.message))
			if got := say(resp.ToolCalls); got != c.want {
				t.Errorf("calls are\n  %s\nwant\n  %s\ntext: %s", got, c.want, resp.TextContent)
			}
			if resp.IsFinal || resp.StopReason != contract.StopToolCalls {
				t.Errorf("is_final %v, stop_reason %s, want an open answer", resp.IsFinal, resp.StopReason)
			}
		})
	}
}

func TestTalkIsAnsweredByText(t *testing.T) {
	a := model(t, nil)
	for _, c := range []struct{ message, want string }{
		{"hello", "running **offline**"},
		{"Hi there!", "no language model is connected"},
		{"who are you?", "**no language model** answers you"},
		{"are you ChatGPT?", "a fixed set of rules"},
		{"which model are you?", "a fixed set of rules"},
		{"help", "what time is it in Tokyo?"},
		{"what can you do?", "**Arithmetic**"},
		{"how do I connect a model?", "`OPENAI_API_KEY`"},
		{"which tools do you have?", "`math:evaluate`"},
		{"thank you!", "welcome"},
		{"say 'tea is ready'", "tea is ready"},
		{"save them to p.txt", "what you refer to"},
		{"what is 2+2 and save it to p.txt", "did not understand"},
		{"write me a poem about the sea", "did not understand"},
		{"what is the meaning of life?", "did not understand"},
		{"", "did not understand"},
	} {
		t.Run(c.message, func(t *testing.T) {
			resp := ask(t, a, everything, user(c.message))
			if !strings.Contains(resp.TextContent, c.want) || len(resp.ToolCalls) > 0 || !resp.IsFinal {
				t.Errorf("answer is %+v, want text with %q", resp, c.want)
			}
		})
	}
}

func TestHelpListsOnlyWhatIsOffered(t *testing.T) {
	text := ask(t, model(t, nil), tools("time:now"), user("help")).TextContent
	if !strings.Contains(text, "**Time**") || strings.Contains(text, "**Arithmetic**") ||
		strings.Contains(text, "**Python**") {
		t.Errorf("help with time:now alone says\n%s", text)
	}
}

func TestToolThatIsNotOfferedIsNamed(t *testing.T) {
	a := model(t, nil)
	if text := ask(t, a, tools("time:now"), user("what is 2+2?")).TextContent; !strings.Contains(text, "`math:evaluate`") {
		t.Errorf("without math:evaluate the answer is %q", text)
	}
	if text := ask(t, a, nil, user("what time is it and what is 2+2?")).TextContent; !strings.Contains(text,
		"did not understand") {
		t.Errorf("without any tool the answer is %q", text)
	}
}

// A tool of a plugin is used by its name, whatever it is.
func TestAToolThatNoRuleKnowsIsUsedByItsName(t *testing.T) {
	a := model(t, nil)
	offered := tools("words:slug", "disk:free")
	for _, c := range []struct{ message, want string }{
		{`use words:slug {"text": "Hello; and World?"}`, `words:slug {"text": "Hello; and World?"}`},
		{"please use the tool `disk:free`.", `disk:free {}`},
		{"Use disk:free with {\"path\": \"/tmp\"}", `disk:free {"path": "/tmp"}`},
	} {
		if got := say(ask(t, a, offered, user(c.message)).ToolCalls); got != c.want {
			t.Errorf("%s: calls are %s, want %s", c.message, got, c.want)
		}
	}
}

func TestOneToolStandsInForAnother(t *testing.T) {
	resp := ask(t, model(t, nil), tools("sandbox_fs:read"), user("read notes.txt"))
	if got := say(resp.ToolCalls); got != `sandbox_fs:read {"path":"notes.txt"}` {
		t.Errorf("with only the sandbox's file tools: %s", got)
	}
}

func TestThenMakesCallsDependOnEachOther(t *testing.T) {
	resp := ask(t, model(t, nil), everything, user("write hello to a.txt, then read a.txt"))
	if len(resp.ToolCalls) != 2 {
		t.Fatalf("calls: %s", say(resp.ToolCalls))
	}
	if first, second := resp.ToolCalls[0], resp.ToolCalls[1]; len(first.DependsOn) != 0 || len(second.DependsOn) != 1 ||
		second.DependsOn[0] != first.ID {
		t.Errorf("the second call depends on %v, want the first, %s", second.DependsOn, first.ID)
	}
}

func TestResultsAreTold(t *testing.T) {
	a := model(t, nil)
	for _, c := range []struct{ name, message, result, want string }{
		{"exact", "what is 2+2?", `{"result":"4","exact":true}`, "2+2 = **4**"},
		{"rounded", "what is 1/3?", `{"result":"0.3333","exact":false,"fraction":"1/3"}`, "1/3 ≈ **0.3333**"},
		{
			"time", "what time is it in Berlin?",
			`{"utc":"2026-03-28T23:30:00Z","local":"2026-03-29T00:30:00+01:00","timezone":"Europe/Berlin","weekday":"Sunday","unix":1}`, "It is **Sunday, 29 March 2026, 00:30:00** (Europe/Berlin).",
		},
		{
			"listing", "list files",
			`{"path":".","entries":[{"path":"docs","type":"directory"},{"path":"a.txt","type":"file","size":5}]}`,
			"`.` contains:\n\n- docs/\n- a.txt (5 bytes)",
		},
		{"empty directory", "list files", `{"path":".","entries":[]}`, "`.` is empty."},
		{"file", "read a.txt", `{"path":"a.txt","size":5,"offset":0,"content":"hello"}`, "`a.txt`:\n\n```\nhello\n```"},
		{
			"part of a file", "read a.txt", `{"path":"a.txt","size":50000,"offset":0,"content":"hello","next_offset":12288}`,
			"has 50000 bytes, and begins with:",
		},
		{"written", "write hello to a.txt", `{"path":"a.txt","size":5}`, "I have written `a.txt`, 5 bytes."},
		{
			"notes", "what do you remember?",
			`{"notes":[{"id":"1","time":"2026-01-01T00:00:00Z","text":"the key is under the mat"}],"found":1}`,
			"- the key is under the mat",
		},
		{"no notes", "what do you remember about tea?", `{"notes":[],"found":0}`, "I remember nothing about \"tea\"."},
		{
			"a result of another shape", "write hello to a.txt", `{"done":true}`,
			"`file_system:write_file` answered:\n\n```\n{\"done\":true}\n```",
		},
		{"number", "what is 2+2?", `4`, "2+2 = **4**"},
		{"object", "what is 2+2?", `{"result":4.5}`, "2+2 = **4.5**"},
		{
			"big number is not rounded", "what is 2^70?", `{"result":1180591620717411303424}`,
			"2^70 = **1180591620717411303424**",
		},
		{"stdout", "run python: print(1)", `{"stdout":"1\n","stderr":"","result":null}`, "Python printed:\n\n```\n1\n```"},
		{"the last expression", "run python: 6*7", `{"stdout":"","stderr":"","result":0}`, "Python printed:\n\n```\n0\n```"},
		{"both", "run python: print(1); 2", `{"stdout":"1\n","stderr":"","result":2}`, "Python printed:\n\n```\n1\n2\n```"},
		{
			"a picture", "run python: x=1", `{"stdout":"","stderr":"","artifacts":[{"path":"out/figure-1.png","bytes":7}]}`,
			"created `out/figure-1.png` for you, 7 bytes",
		},
		{"nothing printed", "run python: x=1", `{"stdout":"","stderr":""}`, "printed nothing"},
		{"stderr", "run python: x", `{"stdout":"","stderr":"warning"}`, "On standard error:\n\n```\nwarning\n```"},
		{"fence cannot be closed", "read a.txt", "\"x\\n```\\ny\"", "````\nx\n```\ny\n````"},
		{"other shape than expected", "run python: 1", `[1,2]`, "[1,2]"},
		{"core's note", "read a.txt", "\"x\"\n[tool output was cut]", "```\nx\n```"},
		{"plain text", "read a.txt", "hello", "```\nhello\n```"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := ask(t, a, everything, user(c.message))
			resp := ask(t, a, everything,
				append([]contract.Message{user(c.message)}, answered(q, contract.Message{Text: c.result})...)...)
			if !strings.Contains(resp.TextContent, c.want) || !resp.IsFinal {
				t.Errorf("answer is %q, want %q in it", resp.TextContent, c.want)
			}
		})
	}
}

func TestFailuresAreTold(t *testing.T) {
	a := model(t, nil)
	for _, c := range []struct{ name, message, result, want string }{
		{
			"its own phrase", "what is 2/0?", `{"error":{"code":"tool_failed","message":"division by zero"},"data":null}`,
			"could not work that out: division by zero",
		},
		{
			"denied", "delete a.txt", `{"error":{"code":"denied","message":"by policy"}}`,
			"was not allowed, so nothing was done: by policy",
		},
		{
			"unknown outcome", "delete a.txt", `{"error":{"code":"outcome_unknown","message":"its runner died."}}`,
			"It is unknown whether",
		},
		{
			"details", "delete a.txt", `{"error":{"code":"invalid_arguments","message":"bad","details":["path: is required"]}}`,
			"- path: is required",
		},
		{
			"a failed program", "run python: print(1); 1/0",
			`{"error":{"code":"tool_failed","message":"ZeroDivisionError: division by zero (exit 1)"},"data":{"stdout":"1\n","stderr":"Traceback"}}`,
			"Python failed: ZeroDivisionError: division by zero (exit 1)\n\nIt had printed:\n\n```\n1\n```\n\n```\n" +
				"Traceback\n```",
		},
		{"no JSON at all", "delete a.txt", `boom`, "did not succeed: boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := ask(t, a, everything, user(c.message))
			resp := ask(t, a, everything,
				append([]contract.Message{user(c.message)}, answered(q, contract.Message{Text: c.result, Failed: true})...)...)
			if !strings.Contains(resp.TextContent, c.want) {
				t.Errorf("answer is %q, want %q in it", resp.TextContent, c.want)
			}
		})
	}
}

// What is answered by text is no part of a list.
func TestTextStandsAlone(t *testing.T) {
	a := model(t, []byte(head+`
split: [{match: ' and '}]
rules:
  - {name: one, match: '^one$', calls: [{tool: t}]}
  - {name: text, match: '^text$', text: x}
`))
	for second, want := range map[string]int{"one": 2, "text": 0} {
		resp := ask(t, a, tools("t"), user("one and "+second))
		if len(resp.ToolCalls) != want {
			t.Errorf("one and %s: %d calls, want %d", second, len(resp.ToolCalls), want)
		}
	}
}

// Arguments are written in the order of the file, whatever their type.
func TestArgumentsOfAnyType(t *testing.T) {
	a := model(t, []byte(head+`
rules:
  - {name: a, match: '^a (?P<x>.*)$', calls: [{tool: t, args: {z: '{{.x}}', n: 2, l: [b, 1], e: '', m: {k: v}}}]}
  - {name: b, match: '^b (?P<x>.*)$', calls: [{tool: t, args: '{{.x}}'}]}
`))
	for message, want := range map[string]string{
		`a "q"`:    `t {"z":"\"q\"","n":2,"l":["b",1],"e":"","m":{"k":"v"}}`,
		`b {"a":1`: `t "{\"a\":1"`,
	} {
		if got := say(ask(t, a, tools("t"), user(message)).ToolCalls); got != want {
			t.Errorf("%s: calls are %s, want %s", message, got, want)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	a := model(t, []byte(head+"rules: [{name: a, match: a, text: '{{.message}}'}]"))
	req := contract.Request{Messages: conversation(t, user(strings.Repeat("a", 300_000)))}
	_, err := a.Generate(t.Context(), req, func(string, string) { t.Error("text of an answer that is too long was sent") })
	var e *contract.Error
	if !errors.As(err, &e) || e.Code != contract.ErrTooLong {
		t.Errorf("300000 bytes of text are %v, want too_long", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Generate(ctx, req, func(string, string) {}); err == nil {
		t.Error("a cancelled request is answered")
	}
}

func TestOnlyTheLastMessageCounts(t *testing.T) {
	resp := ask(t, model(t, nil), everything,
		user("what is 1+1?"),
		contract.Message{
			Role:      contract.RoleAssistant,
			ToolCalls: []contract.ToolCall{{ID: "c0_0", Tool: "math:evaluate", Args: json.RawMessage(`{}`)}},
		},
		contract.Message{Role: contract.RoleTool, CallID: "c0_0", Tool: "math:evaluate", Text: "2"},
		contract.Message{Role: contract.RoleAssistant, Text: "1+1 = **2**"},
		user("what is 2+2?\n[mood: curious]\n[from: web]"),
	)
	if got := say(resp.ToolCalls); got != `math:evaluate {"expression":"2+2"}` {
		t.Errorf("calls: %s %s", got, resp.TextContent)
	}
}

func TestConversationWithoutUserIsRefused(t *testing.T) {
	a := model(t, nil)
	for _, raw := range [][]json.RawMessage{
		nil, {json.RawMessage(`{"role":"assistant","text":"x"}`)}, {json.RawMessage(`{`)},
	} {
		_, err := a.Generate(t.Context(), contract.Request{Messages: raw}, func(string, string) {})
		var e *contract.Error
		if !errors.As(err, &e) || e.Code != contract.ErrBadRequest {
			t.Errorf("messages %q: error is %v, want bad_request", raw, err)
		}
	}
}

func TestRuleFilesAreCheckedOnLoading(t *testing.T) {
	for _, c := range []struct{ name, rules, want string }{
		{"unknown field", "rulez: []", "rulez"},
		{"no fallback", "results: {default: {success: s, failure: f}}\nmissing: m", "fallback: is required"},
		{"no phrases", "fallback: f\nmissing: m", "results.default"},
		{"bad expression", head + "rules: [{name: a, match: '(', text: x}]", "line 4: error parsing regexp"},
		{"bad template", head + "rules: [{name: a, match: a, text: '{{.x'}]", "line 4: template"},
		{"nothing to say", head + "rules: [{name: a, match: a}]", `rule "a": want text or calls`},
		{
			"two things to say", head + "rules: [{name: a, match: a, text: x, calls: [{tool: t}]}]",
			`rule "a": want text or calls`,
		},
		{"name twice", head + "rules: [{name: a, match: a, text: x}, {name: a, match: b, text: x}]", "rules[1].name"},
		{"call without tool", head + "rules: [{name: a, match: a, calls: [{args: {}}]}]", `rule "a", call 1: tool`},
		{
			"unknown field of a rule", head + "rules: [{name: a, match: a, text: x, hang: true}]",
			"line 4: field hang not found",
		},
		{"else without calls", head + "rules: [{name: a, match: a, text: x, else: [{tool: t}]}]", "else needs calls"},
		{"two documents", head + "---\nfallback: x", "more"},
		{"no YAML", "\t{", "yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := offline.New([]byte(c.rules))
			if !errors.Is(err, offline.ErrRules) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

const head = "results: {default: {success: s, failure: f}}\nmissing: m\nfallback: f\n"

func TestLoadReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if _, err := offline.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("loading a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte(head+"rules: [{name: ping, match: '^ping$', text: pong}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := offline.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, a, nil, user("PING")).TextContent; got != "pong" {
		t.Errorf("answer is %q", got)
	}
}

// A template must not be able to break out of the JSON around it.
func TestCapturedTextIsQuoted(t *testing.T) {
	resp := ask(t, model(t, nil), everything, user("remember that \"},{\" and \\u0000 and \u2028 are odd"))
	var args map[string]string
	if err := json.Unmarshal(resp.ToolCalls[0].Args, &args); err != nil ||
		args["text"] != "\"},{\" and \\u0000 and \u2028 are odd" {
		t.Errorf("args %s: %v", resp.ToolCalls[0].Args, err)
	}
}

func BenchmarkAnswer(b *testing.B) {
	a := model(b, nil)
	req := contract.Request{Messages: conversation(b, user("what is 2+2?")), Tools: everything}
	for b.Loop() {
		if _, err := a.Generate(b.Context(), req, func(string, string) {}); err != nil {
			b.Fatal(err)
		}
	}
}

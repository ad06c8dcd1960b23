package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/test/anthropictest"
)

// shape is the messages of a request, one line each: "user: result t1, text hello".
func shape(r anthropictest.Request) string {
	var lines []string
	for _, m := range r.Messages {
		var parts []string
		for _, b := range m.Content {
			part := b.Type
			switch b.Type {
			case "text":
				part += " " + *b.Text
			case "tool_use":
				part = fmt.Sprintf("call %s %s %s", b.ID, b.Name, b.Input)
			case "tool_result":
				part = "result " + b.ToolUseID
				if b.IsError {
					part = "error " + b.ToolUseID
				}
			}
			parts = append(parts, part)
		}
		lines = append(lines, m.Role+": "+strings.Join(parts, ", "))
	}
	return strings.Join(lines, "\n")
}

// What the API would refuse is never sent; the test's server refuses it, too.
func TestMessages(t *testing.T) {
	a, b := call("t1", "a", `{}`), call("t2", "x:b", `{"x":1}`)
	for name, c := range map[string]struct {
		talk []contract.Message
		want string
	}{
		"messages of one role": {
			[]contract.Message{says("a"), says("b"), answers("c"), answers("d "), says("e")},
			"user: text a, text b\nassistant: text c, text d \nuser: text e",
		},
		"blank texts": {
			[]contract.Message{says(" \n"), says("a"), answers(""), answers("\t"), says("b"), says("")},
			"user: text a, text b",
		},
		"a blank text beside a call": {
			[]contract.Message{says("a"), {Role: contract.RoleAssistant, Text: "\n", ToolCalls: []contract.ToolCall{a}}, result(a, " ")},
			"user: text a\nassistant: call t1 a {}\nuser: result t1",
		},
		"the assistant begins": {
			[]contract.Message{answers("a"), says("b")},
			"user: text (The beginning of the conversation is omitted.)\nassistant: text a\nuser: text b",
		},
		"the assistant ends": {
			[]contract.Message{says("a"), answers("b \n")},
			"user: text a\nassistant: text b \n\nuser: text Continue.",
		},
		"parallel calls": {
			[]contract.Message{says("a"), calls(a, b), result(b, "2"), result(a, "1"), says("c")},
			"user: text a\nassistant: call t1 a {}, call t2 x--b {\"x\":1}\nuser: result t2, result t1, text c",
		},
		"a result that comes late": {
			[]contract.Message{says("a"), calls(a, b), says("hurry"), result(a, "1"), result(b, "2")},
			"user: text a\nassistant: call t1 a {}, call t2 x--b {\"x\":1}\nuser: result t1, result t2, text hurry",
		},
		"calls without a result": {
			[]contract.Message{says("a"), calls(a, b), result(b, "2"), answers("c"), says("d"), calls(a)},
			"user: text a\nassistant: call t1 a {}, call t2 x--b {\"x\":1}\nuser: result t2, error t1\n" +
				"assistant: text c\nuser: text d\nassistant: call call_2 a {}\nuser: error call_2",
		},
		"results without a call": {
			[]contract.Message{result(a, "0"), says("a"), calls(a), result(a, "1"), result(a, "2"), {Role: contract.RoleTool, Text: "?", Failed: true}},
			"user: text output of a: 0, text a\nassistant: call t1 a {}\nuser: result t1, text output of a: 2, text error of a tool: ?",
		},
		"ids of others": {
			[]contract.Message{
				says("a"), calls(call("call_0", "a", `{}`), call("x.y:z", "a", `{}`)), result(call("x.y:z", "a", ""), "1"),
				result(call("call_0", "a", ""), "2"), calls(call("call_0", "a", `{}`), call("call_2", "a", `{}`)),
				result(call("call_0", "a", ""), "3"), result(call("call_2", "a", ""), "4"),
			},
			"user: text a\nassistant: call call_0 a {}, call call_1 a {}\nuser: result call_1, result call_0\n" +
				"assistant: call call_2 a {}, call call_3 a {}\nuser: result call_2, result call_3",
		},
		"arguments of any kind": {
			[]contract.Message{says("a"), calls(call("t1", "a", `"{\"x"`), call("t2", "a", `[1]`)), result(a, "1"), result(b, "2")},
			"user: text a\nassistant: call t1 a {\"invalid_arguments\":\"{\\\"x\"}, call t2 a {\"invalid_arguments\":\"[1]\"}\n" +
				"user: result t1, result t2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, model := range []string{anthropictest.Model, anthropictest.OldModel} {
				s := anthropictest.New(t)
				_, _, _, _ = generate(t, client(t, s, thinking(model)), request(t, c.talk...)) // of some there is no answer
				if got := shape(last(t, s)); got != c.want {
					t.Errorf("sent\n%s\nwant\n%s", got, c.want)
				}
				wellFormed(t, s)
			}
		})
	}
}

func TestARoleThatIsUnknown(t *testing.T) {
	s := anthropictest.New(t)
	_, _, _, err := generate(t, client(t, s), request(t, contract.Message{Role: "system", Text: "x"}))
	if err == nil || len(s.Seen()) > 0 {
		t.Errorf("%v, %d requests", err, len(s.Seen()))
	}
}

func TestTools(t *testing.T) {
	long := strings.Repeat("very_", 30)
	req := request(t, says("hello"))
	req.System = " \n"
	for name, args := range map[string]string{
		"zip:pack": `{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}`, "a:none": ``, "a:null": `null`,
		"a:untyped": `{"properties":{"x":{}}}`, "a:either": `{"anyOf":[{"required":["x"]}],"properties":{"x":{}},"type":"object"}`,
		"a:list": `{"type":["object","null"]}`, long + "1": `{"type":"object"}`, long + "2": `{"type":"object"}`,
	} {
		req.Tools = append(req.Tools, contract.ToolSpec{Name: name, Args: json.RawMessage(args)}) // in any order
	}
	s := anthropictest.New(t)
	ask(t, client(t, s), req)
	var got []string
	for _, tool := range last(t, s).Tools {
		got = append(got, tool.Name+" "+string(tool.InputSchema))
	}
	want := `a--either {"properties":{"x":{}},"type":"object"}
a--list {"type":"object"}
a--none {"type":"object"}
a--null {"type":"object"}
a--untyped {"properties":{"x":{}},"type":"object"}
math--evaluate {"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}
` + long[:64] + ` {"type":"object"}
zip--pack {"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("offered\n%s\nwant\n%s", s, want)
	}
	wellFormed(t, s)
}

func TestASchemaThatIsNoJSON(t *testing.T) {
	req := request(t, says("hello"))
	req.Tools[0].Args = json.RawMessage(`{`)
	s := anthropictest.New(t)
	ask(t, client(t, s), req)
	if got := string(last(t, s).Tools[0].InputSchema); got != `{"type":"object"}` {
		t.Errorf("offered %s", got)
	}
}

// marks says where a request is marked for the cache.
func marks(r anthropictest.Request) string {
	var at []string
	for i, tool := range r.Tools {
		if tool.Cache != nil {
			at = append(at, fmt.Sprintf("tool %d", i))
		}
	}
	for i, b := range r.System {
		if b.Cache != nil {
			at = append(at, fmt.Sprintf("system %d", i))
		}
	}
	for i, m := range r.Messages {
		for k, b := range m.Content {
			if b.Cache != nil {
				at = append(at, fmt.Sprintf("%d.%d", i, k))
			}
		}
	}
	return strings.Join(at, ", ")
}

func TestCacheMarks(t *testing.T) {
	big := strings.Repeat("x", 5000)
	c := call("t1", "math:evaluate", `{}`)
	talk := []contract.Message{says("a"), answers("b"), says("c"), calls(c), result(c, "1"), says("d")}
	bigTool := []contract.ToolSpec{{Name: "a", Args: json.RawMessage(`{}`)}, {Name: "b", Description: big, Args: json.RawMessage(`{}`)}}
	for name, test := range map[string]struct {
		tools  []contract.ToolSpec
		system string
		talk   []contract.Message
		want   string
	}{
		"a short request":           {nil, "s", talk, ""},
		"a long prompt":             {nil, big, talk, "system 0, 2.0, 4.1"},
		"long tools":                {bigTool, "", talk, "tool 1, 2.0, 4.1"},
		"everything":                {bigTool, "s", talk, "tool 1, system 0, 2.0, 4.1"},
		"a long message":            {nil, "s", append([]contract.Message{says(big)}, talk...), "2.0, 4.1"},
		"the first, and no tools":   {nil, big, talk[:1], "system 0"},
		"the first, and tools":      {bigTool, "", talk[:1], "tool 1, 0.0"},
		"a long and only question":  {nil, "", []contract.Message{says(big)}, ""},
		"a long question and tools": {bigTool[:1], "", []contract.Message{says(big)}, "0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.New(t)
			req := request(t, test.talk...)
			req.Tools, req.System = test.tools, test.system
			ask(t, client(t, s), req)
			if got := marks(last(t, s)); got != test.want {
				t.Errorf("marked %q, want %q", got, test.want)
			}
			wellFormed(t, s)
		})
	}
}

// A conversation that goes on begins with the same bytes, marks aside, whatever the order of
// the tools.
func TestTheBeginningStaysTheSame(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s, func(c *anthropic.Config) { c.ThinkingTokens = 2048 })
	tools := []contract.ToolSpec{
		{Name: "b", Args: json.RawMessage(`{"type":"object"}`)}, {Name: "a", Description: strings.Repeat("x", 5000), Args: json.RawMessage(`{"type":"object"}`)},
	}
	talk := []contract.Message{says(`loop a {"<":1}`)}
	before := ""
	for i := range 6 {
		req := request(t, talk...)
		req.System, req.Tools = "s", []contract.ToolSpec{tools[i%2], tools[1-i%2]}
		resp := ask(t, a, req)
		talk = append(talk, message(resp), result(resp.ToolCalls[0], "1"))
		raw := strings.ReplaceAll(last(t, s).Raw, `,"cache_control":{"type":"ephemeral"}`, "")
		if !strings.HasPrefix(raw, before) {
			t.Errorf("sent\n%s\nafter\n%s", raw, before)
		}
		before = strings.TrimSuffix(raw, `],"stream":true}`)
	}
	wellFormed(t, s)
}

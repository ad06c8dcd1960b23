package rpc_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// The numbers of an answer's errors, and its ids: "id:code" of each, code 0 for a result.
func outline(t *testing.T, b []byte) string {
	t.Helper()
	one := func(raw json.RawMessage) string {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil || m.JSONRPC != "2.0" {
			t.Fatalf("answered %s: %v", raw, err)
		}
		id, code := "null", 0
		if m.ID != nil {
			id = string(*m.ID)
		}
		if m.Error != nil {
			if code = m.Error.Code; m.Error.Message == "" || m.Error.Data == nil || m.Result != nil {
				t.Errorf("the error is %s", raw)
			}
		}
		return fmt.Sprintf("%s:%d", id, code)
	}
	if b[0] != '[' {
		return one(b)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("answered %s: %v", b, err)
	}
	parts := make([]string, len(all))
	for i, raw := range all {
		parts[i] = one(raw)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// The rules of https://www.jsonrpc.org/specification, with its examples where they apply.
func TestJSONRPCToTheLetter(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "")
	c.hear(contract.OnAttached)
	big := make([]string, jsonrpc.MaxBatch+1)
	for i := range big {
		big[i] = `{"jsonrpc":"2.0","method":"getStatus"}`
	}
	for _, k := range []struct{ name, send, want string }{
		{"a string as id", `{"jsonrpc":"2.0","id":"a\u00e9","method":"getStatus"}`, `"a\u00e9":0`},
		{"a number as id", `{"jsonrpc":"2.0","id":12345678901234567890,"method":"getStatus"}`, `12345678901234567890:0`},
		{"a fraction as id", `{"jsonrpc":"2.0","id":-1.5,"method":"getStatus"}`, `-1.5:0`},
		{"null as id is no notification", `{"jsonrpc":"2.0","id":null,"method":"getStatus"}`, `null:0`},
		{"no JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, `null:-32700`},
		{"nothing", ``, `null:-32700`},
		{"two values", `{} {}`, `null:-32700`},
		{
			"a batch that is no JSON", `[{"jsonrpc":"2.0","method":"sum","params":[1,2,4],"id":"1"},{"jsonrpc":"2.0","method"]`,
			`null:-32700`,
		},
		{"no request", `{"jsonrpc":"2.0","method":1,"params":"bar"}`, `null:-32600`},
		{"a number", `1`, `null:-32600`},
		{"null", `null`, `null:-32600`},
		{"an empty batch", `[]`, `null:-32600`},
		{"an invalid batch", `[1]`, `[null:-32600]`},
		{"another one", `[1,2,3]`, `[null:-32600 null:-32600 null:-32600]`},
		{"too large a batch", `[` + strings.Join(big, ",") + `]`, `null:-32600`},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"getStatus"}`, `1:-32600`},
		{"no version", `{"id":1,"method":"getStatus"}`, `1:-32600`},
		{"another case", `{"JSONRPC":"2.0","id":1,"method":"getStatus"}`, `1:-32600`},
		{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"getStatus"}`, `null:-32600`},
		{"true as id", `{"jsonrpc":"2.0","id":true,"method":"getStatus"}`, `null:-32600`},
		{"a bare string as parameters", `{"jsonrpc":"2.0","id":1,"method":"submitUserInput","params":"hello"}`, `1:-32600`},
		{"null as parameters", `{"jsonrpc":"2.0","id":1,"method":"getStatus","params":null}`, `1:-32600`},
		{"an answer", `{"jsonrpc":"2.0","id":1,"result":{}}`, `1:-32600`},
		{"an unknown method", `{"jsonrpc":"2.0","method":"foobar","id":"1"}`, `"1":-32601`},
		{"a reserved one", `{"jsonrpc":"2.0","method":"rpc.discover","id":1}`, `1:-32601`},
		{"a method in another case", `{"jsonrpc":"2.0","method":"SubmitUserInput","id":1}`, `1:-32601`},
		{"unknown parameters", `{"jsonrpc":"2.0","method":"submitUserInput","params":{"Input":"x"},"id":1}`, `1:-32602`},
		{
			"too many parameters",
			`{"jsonrpc":"2.0","method":"submitUserInput","params":["a","b","queue","main","s","x"],"id":1}`, `1:-32602`,
		},
		{"parameters of a wrong type", `{"jsonrpc":"2.0","method":"submitUserInput","params":[1],"id":1}`, `1:-32602`},
		{"missing ones", `{"jsonrpc":"2.0","method":"submitUserInput","id":1}`, `1:-32602`},
		{"others than detach has", `{"jsonrpc":"2.0","method":"detach","params":[1],"id":1}`, `1:-32602`},
		{
			"a batch",
			`[{"jsonrpc":"2.0","method":"submitUserInput","params":["1"],"id":"1"},{"jsonrpc":"2.0","method":"getStatus"},` +
				`{"jsonrpc":"2.0","method":"listTools","id":"2"},{"foo":"boo"},{"jsonrpc":"2.0","method":"foo.get","params":{"name":"myself"},"id":"5"},` +
				`{"jsonrpc":"2.0","method":"getHooks","id":"9"}]`, `["1":0 "2":0 null:-32600 "5":-32601 "9":0]`,
		},
	} {
		t.Run(k.name, func(t *testing.T) {
			c.send(k.send)
			if got := outline(t, c.raw()); got != k.want {
				t.Errorf("%s is answered %s, want %s", k.send, got, k.want)
			}
		})
	}
}

// A notification is never answered, whatever becomes of it, and neither is a batch of them.
func TestNotificationsAreNotAnswered(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "?session=s")
	c.hear(contract.OnAttached)
	for _, send := range []string{
		`{"jsonrpc":"2.0","method":"submitUserInput","params":["a"]}`,
		`{"jsonrpc":"2.0","method":"submitUserInput","params":[1]}`,
		`{"jsonrpc":"2.0","method":"foobar"}`,
		`[{"jsonrpc":"2.0","method":"submitUserInput","params":["b"]},{"jsonrpc":"2.0","method":"notify_hello","params":[7]}]`,
	} {
		c.send(send)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"submitUserInput","params":["c"]}`)
	if got := outline(t, c.raw()); got != "1:0" {
		t.Errorf("heard %s", got)
	}
	var texts []string
	for _, v := range r.Log() {
		texts = append(texts, v.(contract.Submission).Text)
	}
	if strings.Join(texts, "") != "abc" {
		t.Errorf("stored %q", texts)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	r := newRig(t, rpc.Config{})
	c := r.dial(t, "")
	for _, k := range []struct{ method, params, field, says string }{
		{"submitUserInput", `{}`, "input", "missing"},
		{"submitUserInput", `{"input":null}`, "input", "missing"},
		{"submitUserInput", `{"input":["x"]}`, "input", "string"},
		{"submitUserInput", `{"input":"x","inputs":"y"}`, "inputs", "input, id, mode"},
		{"submitUserInput", `{"input":"x","session":"a.b"}`, "session", "characters"},
		{"submitUserInput", `{"input":"x","agent":"other"}`, "session", "missing"},
		{"provideConfirmation", `{"confirmationId":"c","approved":"yes"}`, "approved", "true or false"},
		{
			"provideConfirmation", `{"confirmationId":"c","approved":true,"hash":"h","always":{"tool":1}}`, "always.tool",
			"number",
		},
		{
			"provideConfirmation", `{"confirmationId":"c","approved":true,"hash":"h","always":{"tools":"x"}}`, "always.tools",
			"field",
		},
		{"cancelTurn", `{"sequence":-1}`, "sequence", "non-negative integer"},
		{"cancelTurn", `{"sequence":1.5}`, "sequence", "non-negative integer"},
		{"runCommand", `{"name":"reset now"}`, "name", "one word"},
		{"runCommand", `{"name":"//x"}`, "name", "one word"},
		{"runCommand", `{"name":"replay","args":["1","a b"]}`, "args[1]", "one word"},
		{"runCommand", `{"name":"replay","args":"1"}`, "args", "array"},
		{"attach", `{"after":7}`, "after", "string"},
		{"foo", `{}`, "method", "attach, cancelTurn, correctMemory, detach, forgetMemory, getHooks"},
	} {
		m := c.ask("1", k.method, k.params)
		if m.Error == nil || m.Error.Data.Field != k.field || !strings.Contains(m.Error.Data.Message, k.says) {
			t.Errorf("%s %s is answered %s %+v", k.method, k.params, m.Result, m.Error)
		}
	}
	if got := r.Log(); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
}

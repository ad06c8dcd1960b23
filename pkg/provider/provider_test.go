package provider_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
)

func TestIdsAreStringsOrNumbers(t *testing.T) {
	var c provider.ToolCall
	if err := json.Unmarshal([]byte(`{"id":7,"tool":"a","args":{"x":1},"depends_on":[0,"one",-2.5]}`), &c); err != nil {
		t.Fatal(err)
	}
	want := provider.ToolCall{
		ID: "7", Tool: "a", Args: json.RawMessage(`{"x":1}`), DependsOn: []string{"0", "one", "-2.5"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v", c)
	}
	b, err := json.Marshal(c)
	if err != nil || string(b) != `{"id":"7","tool":"a","args":{"x":1},"depends_on":["0","one","-2.5"]}` {
		t.Errorf("got %s, %v", b, err)
	}
	for _, bad := range []string{`true`, `[]`, `{}`} {
		if err := json.Unmarshal([]byte(`{"id":`+bad+`}`), &c); err == nil ||
			!strings.Contains(err.Error(), "string or a number") {
			t.Errorf("id %s: %v", bad, err)
		}
	}
}

// A null leaves what a JSON reader of Go always leaves: nothing.
func TestANullIDIsNone(t *testing.T) {
	var c provider.ToolCall
	if err := json.Unmarshal([]byte(`{"id":null,"depends_on":null}`), &c); err != nil || c.ID != "" || c.DependsOn != nil {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestConversationDecodesMessages(t *testing.T) {
	state := json.RawMessage(`{ "sig" : "a b" }`)
	r := provider.Request{Messages: []json.RawMessage{
		json.RawMessage(`{"role":"user","text":"hi"}`),
		json.RawMessage(`{"role":"assistant","tool_calls":[{"id":1,"tool":"t","args":{}}],"provider_state":{ "sig" : "a b" }}`),
		json.RawMessage(`{"role":"tool","call_id":"1","tool":"t","text":"no","failed":true}`),
	}}
	got, err := r.Conversation()
	want := []provider.Message{
		{Role: provider.RoleUser, Text: "hi"},
		{
			Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{{ID: "1", Tool: "t", Args: json.RawMessage(`{}`)}},
			ProviderState: state,
		},
		{Role: provider.RoleTool, CallID: "1", Tool: "t", Text: "no", Failed: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	r.Messages = append(r.Messages, json.RawMessage(`{"role":1}`))
	if _, err := r.Conversation(); err == nil {
		t.Error("a message whose role is a number was read")
	}
}

func TestUsageAddsUp(t *testing.T) {
	got := provider.Usage{InputTokens: 1, OutputTokens: 2, CostMicroUSD: 3}.Add(provider.Usage{
		InputTokens: 10, OutputTokens: 20, CostMicroUSD: 30,
	})
	if got != (provider.Usage{InputTokens: 11, OutputTokens: 22, CostMicroUSD: 33}) {
		t.Errorf("got %+v", got)
	}
}

func TestAnErrorSaysItsCode(t *testing.T) {
	var err error = &provider.Error{Code: provider.ErrRateLimited, Message: "429"}
	var e *provider.Error
	if !errors.As(err, &e) || err.Error() != "provider: rate_limited: 429" {
		t.Errorf("got %v", err)
	}
}

// What a model's call is read as can be written, and read as the same.
func FuzzToolCallJSON(f *testing.F) {
	for _, s := range []string{
		`{"id":"call_1","tool":"weather:now","args":{"city":"Oslo"},"depends_on":["a",2]}`,
		`{"id":1e400,"tool":"","args":"not json {"}`, `{"id":-0.0,"args": [ 1 , 2 ] }`, `{}`, `null`,
		`{"ID":"a","id":"b","args":null,"depends_on":[null]}`, `{"id":"\ud800","tool":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c provider.ToolCall
		if json.Unmarshal(b, &c) != nil {
			return
		}
		b1, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("%s\ndoes not encode: %v", b, err)
		}
		var again provider.ToolCall
		if err := json.Unmarshal(b1, &again); err != nil {
			t.Fatalf("%s\nis written as %s\nwhich does not decode: %v", b, b1, err)
		}
		b2, err := json.Marshal(again)
		if err != nil || string(b1) != string(b2) {
			t.Fatalf("not stable: %v\n%s\n%s", err, b1, b2)
		}
		if c.ID != again.ID || c.Tool != again.Tool || !reflect.DeepEqual(c.DependsOn, again.DependsOn) {
			t.Fatalf("%+v\nbecomes %+v", c, again)
		}
	})
}

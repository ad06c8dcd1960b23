package tail_test

import (
	"encoding/json"
	"errors"
	"testing"

	"skandha.dev/services/provider/tail"
)

func raw(messages ...string) (out []json.RawMessage) {
	for _, m := range messages {
		out = append(out, json.RawMessage(m))
	}
	return out
}

func TestTheEndOfAConversation(t *testing.T) {
	got, err := tail.Read(raw(
		`no JSON, and not read`,
		`{"role":"user","text":" what is 2+2?\n[mood: curious]"}`,
		`{"role":"assistant","tool_calls":[{"id":"a","tool":"m:e","args":{"x":1}}]}`,
		`{"role":"tool","call_id":"a","tool":"m:e","text":"4\n[it was cut]"}`,
		`{"role":"assistant","tool_calls":[{"id":"b","tool":"m:f","args":{}}]}`,
		`{"role":"tool","call_id":"b","tool":"m:f","failed":true,"text":"{\"error\":{\"code\":\"denied\",\"message\":\"no\"},\"data\":7}"}`))
	if err != nil || got.Message != "what is 2+2?" || got.Rounds != 2 || got.Succeeded() || len(got.Results) != 2 {
		t.Fatalf("the tail is %+v, %v", got, err)
	}
	first, second := got.Results[0], got.Results[1]
	if first.Text != "4" || first.Note != "it was cut" || string(first.Args) != `{"x":1}` || first.Round != 1 ||
		first.Data() != json.Number("4") {
		t.Errorf("the first result is %+v", first)
	}
	if f := second.Fault(); f.Code != "denied" || f.Message != "no" || second.Data() != json.Number("7") ||
		second.Round != 2 {
		t.Errorf("the second result is %+v", second)
	}
	plain := tail.Result{Text: "boom"}
	if f := plain.Fault(); f.Code != "tool_failed" || f.Message != "boom" {
		t.Errorf("a failure without a shape is %+v", f)
	}
}

func TestAConversationWithoutAUser(t *testing.T) {
	if _, err := tail.Read(raw(`{"role":"assistant","text":"x"}`)); !errors.Is(err, tail.ErrNoMessage) {
		t.Errorf("error is %v", err)
	}
	if _, err := tail.Read(raw(`{`)); err == nil {
		t.Error("what is not JSON is read")
	}
}

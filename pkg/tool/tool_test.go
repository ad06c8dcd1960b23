package tool_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
)

func TestATimeoutIsBoundedOnBothSides(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: tool.DefaultTimeout, -1: tool.DefaultTimeout, 1: time.Millisecond, 60_000: time.Minute,
		tool.MaxTimeout.Milliseconds(): tool.MaxTimeout, tool.MaxTimeout.Milliseconds() + 1: tool.MaxTimeout,
		1 << 62: tool.MaxTimeout, // times a million does not fit
	} {
		if got := (tool.Spec{TimeoutMS: ms}).Timeout(); got != want {
			t.Errorf("timeout_ms %d: %v, want %v", ms, got, want)
		}
	}
}

func TestOKCarriesAnyJSON(t *testing.T) {
	for _, v := range []any{nil, 1, "x", []int{1}, map[string]any{"a": nil}, json.RawMessage(`{"b":1}`)} {
		r := tool.OK(v)
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Success || r.Error != nil || string(r.Data) != string(want) {
			t.Errorf("OK(%v) = %+v", v, r)
		}
	}
}

func TestWhatIsNoJSONIsAFailureOfTheTool(t *testing.T) {
	for _, v := range []any{func() {}, make(chan int), json.RawMessage(`{`)} {
		r := tool.OK(v)
		if r.Success || r.Error == nil || r.Error.Code != tool.CodeInternal ||
			!strings.Contains(r.Error.Message, "encoding the result") {
			t.Errorf("OK(%T) = %+v", v, r)
		}
	}
}

func TestAFailureSaysWhy(t *testing.T) {
	r := tool.Failure(tool.CodeInvalidArgs, "they do not fit", "/path: missing", "/n: too large")
	b, err := json.Marshal(r)
	const want = `{"success":false,"error":{"code":"invalid_arguments","message":"they do not fit","details":["/path: missing","/n: too large"]}}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v", b, err)
	}
	var e *tool.Error
	if !errors.As(error(r.Error), &e) || e.Error() != "invalid_arguments: they do not fit" {
		t.Errorf("got %v", e)
	}
}

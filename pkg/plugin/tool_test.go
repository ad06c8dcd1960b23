package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
)

func callBody(t *testing.T, id, args string, deadline time.Time) []byte {
	t.Helper()
	body, err := json.Marshal(tool.Call{
		Call: id, Attempt: "a1", Agent: "demo", Session: "s1", Turn: "t1", Tool: "test:it", Args: json.RawMessage(args),
		Deadline: deadline,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func inAMinute() time.Time { return time.Now().Add(time.Minute) }

type place struct {
	City string `json:"city"`
	Days int    `json:"days" default:"1"`
}

func TestToolResults(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		err  error
		want string
	}{
		"a value": {map[string]int{"a": 1}, nil, `{"success":true,"data":{"a":1}}`},
		"nothing": {nil, nil, `{"success":true,"data":null}`},
		"a result": {
			tool.Result{Success: true, Data: json.RawMessage(`1`), Metadata: map[string]any{"k": "v"}},
			nil,
			`{"success":true,"data":1,"metadata":{"k":"v"}}`,
		},
		"a failure": {
			tool.Failure(tool.CodeDenied, "no"), nil, `{"success":false,"error":{"code":"denied","message":"no"}}`,
		},
		"a vague failure": {
			tool.Result{},
			nil,
			`{"success":false,"error":{"code":"tool_failed","message":"the tool failed without giving a reason"}}`,
		},
		"a contradiction": {tool.Result{Success: true, Error: &tool.Error{}}, nil, `{"success":true}`},
		"an error": {
			nil, errors.New("broken"), `{"success":false,"error":{"code":"tool_failed","message":"broken"}}`,
		},
		"an error of ours": {
			nil, fmt.Errorf("x: %w", &tool.Error{Code: tool.CodeDenied, Message: "no"}),
			`{"success":false,"error":{"code":"denied","message":"no"}}`,
		},
		"not JSON": {
			make(chan int), nil,
			`{"success":false,"error":{"code":"internal","message":"the tool ran, but its result cannot be encoded as JSON: json: unsupported type: chan int"}}`,
		},
		"a result of no JSON": {
			tool.Result{Success: true, Data: json.RawMessage("{")},
			nil,
			`{"success":false,"error":{"code":"internal","message":"the tool ran, but its result cannot be encoded as JSON: json: error calling MarshalJSON for type json.RawMessage: unexpected end of JSON input"}}`,
		},
	} {
		run := bound(t, Tool("test:it", "d", func(context.Context, place) (any, error) { return c.v, c.err }))
		got, err := run(t.Context(), callBody(t, "t1-p1-c0", `{"city":"Oslo"}`, inAMinute()))
		if err != nil || !sameJSON(t, got, c.want) {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

func TestAToolGetsItsArgumentsAndItsCall(t *testing.T) {
	run := bound(t, Tool("test:it", "d", func(ctx context.Context, p place) (string, error) {
		call, ok := CallOf(ctx)
		if at, has := ctx.Deadline(); !ok || call.Call != "t1-p1-c0" || call.Attempt != "a1" || call.Session != "s1" ||
			!has || !at.Equal(call.Deadline) {
			t.Errorf("%+v", call)
		}
		return fmt.Sprint(p.City, p.Days), nil
	}))
	got, err := run(t.Context(), callBody(t, "t1-p1-c0", `{"city":"Oslo","days":2}`, inAMinute()))
	if err != nil || !sameJSON(t, got, `{"success":true,"data":"Oslo2"}`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, ok := CallOf(t.Context()); ok {
		t.Error("a call out of nothing")
	}
}

func TestACallRunsOnce(t *testing.T) {
	for name, end := range map[string]func(int) (int, error){
		"success": func(n int) (int, error) { return n, nil },
		"failure": func(n int) (int, error) { return 0, fmt.Errorf("run %d", n) },
		"panic":   func(int) (int, error) { panic("oh") },
	} {
		ran := 0
		run := bound(t, Tool("test:it", "d", func(context.Context, struct{}) (int, error) { ran++; return end(ran) }))
		first, err := run(t.Context(), callBody(t, "t1-p1-c0", `{}`, inAMinute()))
		if err != nil {
			t.Fatal(err)
		}
		again, err := run(t.Context(), callBody(t, "t1-p1-c0", `{}`, inAMinute()))
		if ran != 1 || string(again) != string(first) || err != nil {
			t.Errorf("%s: ran %d times, %s, then %s (%v)", name, ran, first, again, err)
		}
		if _, err := run(t.Context(), callBody(t, "t1-p1-c1", `{}`, inAMinute())); ran != 2 || err != nil {
			t.Errorf("%s: another call ran %d times, %v", name, ran, err)
		}
	}
}

func TestFailuresOfACall(t *testing.T) {
	code := func(t *testing.T, name string, h Handler, args string, deadline time.Time, want tool.Code) {
		t.Helper()
		got, err := bound(t, h)(t.Context(), callBody(t, "t1-p1-c0", args, deadline))
		var r tool.Result
		if err != nil || json.Unmarshal(got, &r) != nil || r.Error == nil || r.Error.Code != want {
			t.Errorf("%s: %s (%v), want code %s", name, got, err, want)
		}
	}
	code(t, "arguments that do not fit", Tool("test:it", "d", func(context.Context, place) (int, error) {
		t.Error("it ran")
		return 0, nil
	}), `{"city":1}`, inAMinute(), tool.CodeInvalidArgs)
	code(t, "a panic", Tool("test:it", "d", func(context.Context, place) (int, error) { panic("oh") }), `{}`, inAMinute(),
		tool.CodeInternal)
	synctest.Test(t, func(t *testing.T) { // or it might have passed before the tool is called
		code(t, "a deadline that passes", Tool("test:it", "d", func(ctx context.Context, _ place) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}), `{}`, inAMinute(), tool.CodeTimeout)
	})
	code(t, "a result that is too large", Tool("test:it", "d", func(context.Context, place) (string, error) {
		return strings.Repeat("x", MaxResult), nil
	}), `{}`, inAMinute(), tool.CodeTooLarge)
}

func TestACallThatIsNoneIsRefused(t *testing.T) {
	run := bound(t, Tool("test:it", "d", func(context.Context, place) (int, error) {
		t.Error("it ran")
		return 0, nil
	}))
	for what, c := range map[string]struct {
		body []byte
		code bus.Code
	}{
		"no JSON":           {[]byte(`oops`), bus.CodeInvalidArgument},
		"no call":           {[]byte(`{"tool":"test:it"}`), bus.CodeInvalidArgument},
		"another tool":      {[]byte(`{"call":"t1-p1-c0","attempt":"a","tool":"test:other"}`), bus.CodeInvalidArgument},
		"a deadline passed": {callBody(t, "t1-p1-c0", `{}`, time.Now().Add(-time.Second)), bus.CodeTimeout},
	} {
		if _, err := run(t.Context(), c.body); bus.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
	}
}

func TestToolOptions(t *testing.T) {
	h := Tool("test:it", "d", func(context.Context, json.RawMessage) (int, error) { return 0, nil },
		Args(json.RawMessage(`{"type":"object","required":["x"]}`)), Idempotent(), Internal(), Risk(tool.RiskHigh),
		Permissions("fs.write"), Scope("x"), Scenarios("communication"), Timeout(3*time.Second))
	m, err := Handlers{h}.Complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(m.Tools[0])
	if err != nil ||
		!sameJSON(t, got, `{"name":"test:it","description":"d","args":{"type":"object","required":["x"]},"idempotent":true,
		"internal":true,"permissions":["fs.write"],"scope":["x"],"risk":"high","scenario_tags":["communication"],"timeout_ms":3000}`) {
		t.Errorf("%s, %v", got, err)
	}
}

// A probe is answered by the probe's function, with the call's key, and the tool does not run.
func TestAProbeDoesNotRunTheTool(t *testing.T) {
	ran := 0
	handlers := Handlers{
		Tool("test:it", "does it", func(context.Context, place) (any, error) { ran++; return "done", nil }),
		Probe("test:it", func(ctx context.Context, p place) (any, error) {
			call, _ := CallOf(ctx)
			if call.Probe == nil || call.Key == "" {
				t.Errorf("the call is %+v", call)
			}
			return "found in " + p.City, nil
		}),
		Tool("test:other", "does", func(context.Context, struct{}) (any, error) { return nil, nil }),
	}
	m, p, err := handlers.complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil || !m.Tools[0].Probe || m.Tools[1].Probe {
		t.Fatalf("%+v %v", m.Tools, err)
	}
	ask := func(i int, name string) ([]byte, error) {
		body, err := json.Marshal(tool.Call{
			Call: "t1-p1-c0", Attempt: "a2", Agent: "demo", Session: "s1", Tool: name, Args: json.RawMessage(`{"city":"Oslo"}`),
			Deadline: inAMinute(), Key: "k1", Probe: &tool.Probe{NotAfter: time.Now()},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.tools[i].bind(&runtime{})(t.Context(), body, func() {})
	}
	if body, err := ask(0, "test:it"); err != nil || string(body) != `{"success":true,"data":"found in Oslo"}` || ran > 0 {
		t.Errorf("%s %v, ran %d times", body, err, ran)
	}
	if body, err := ask(1, "test:other"); !errors.Is(err, bus.ErrInvalidArgument) {
		t.Errorf("a tool without a probe answers %s %v", body, err)
	}
	if _, err := (Handlers{Probe("test:none", func(context.Context, struct{}) (any, error) { return nil, nil })}).Complete(m); err == nil {
		t.Error("a probe without a tool is accepted")
	}
}

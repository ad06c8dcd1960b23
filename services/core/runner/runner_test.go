package runner_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/executor"
)

func spec(change func(*tool.Spec)) tool.Spec {
	s := tool.Spec{
		Name: "x:echo", Description: "echoes", Idempotent: true,
		Args: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","default":7}},"additionalProperties":false}`),
	}
	change(&s)
	return s
}

func echo(_ context.Context, c runner.Call) tool.Result {
	args, failed := runner.Decode[struct {
		N int `json:"n"`
	}](c)
	if failed != nil {
		return *failed
	}
	return tool.OK(map[string]any{"n": args.N, "session": c.Session, "call": c.ID})
}

func TestACallIsValidatedAndRun(t *testing.T) {
	all, err := runner.Compile([]runner.Tool{runner.Plain(spec(func(*tool.Spec) {}), echo)})
	if err != nil {
		t.Fatal(err)
	}
	run := func(name, args string) tool.Result {
		return *all.Run(t.Context(), executor.Request{
			Session: "s", Call: "t1-p1-c0", Tool: &executor.ToolCall{Name: name, Args: json.RawMessage(args)},
		}, nil).Result
	}
	if r := run("x:echo", `{}`); string(r.Data) != `{"call":"t1-p1-c0","n":7,"session":"s"}` {
		t.Errorf("%s %+v", r.Data, r.Error)
	}
	if r := run("x:echo", `{"m":1}`); r.Success || r.Error.Code != tool.CodeInvalidArgs {
		t.Errorf("%+v", r)
	}
	if r := run("x:other", `{}`); r.Success || r.Error.Code != tool.CodeUnknownTool {
		t.Errorf("%+v", r)
	}
}

func TestToolsOfCoreAreIdempotentAndSound(t *testing.T) {
	for want, s := range map[string]tool.Spec{
		"must be idempotent": spec(func(s *tool.Spec) { s.Idempotent = false }),
		"x:echo":             spec(func(s *tool.Spec) { s.Args = json.RawMessage(`{"type":`) }),
	} {
		if _, err := runner.Compile([]runner.Tool{runner.Plain(s, echo)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Package runner offers the tools that agents call and that core itself runs, as an executor.
//
// A core has one, because it answers as the core's instance.
package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/toolschema"
)

// drain is how long calls that run are waited for when the core stops. All tools are idempotent, so that
// another core makes the calls again.
const drain = 2 * time.Second

// Call is an attempt at a call. Its arguments match the tool's schema.
type Call struct {
	subject.Ref
	executor.ToolCall
	ID, Attempt string
}

// Tool is one that core runs.
type Tool struct {
	Spec tool.Spec
	Run  func(ctx context.Context, c Call) executor.Answer
}

// Plain returns a tool whose answer is only a result.
func Plain(spec tool.Spec, run func(ctx context.Context, c Call) tool.Result) Tool {
	return Tool{spec, func(ctx context.Context, c Call) executor.Answer {
		r := run(ctx, c)
		return executor.Answer{Result: &r}
	}}
}

// Tools are tools by name, with the validators of their arguments.
type Tools map[string]compiled

type compiled struct {
	Tool
	args *toolschema.Validator
}

// Compile checks the tools. Each must be idempotent.
func Compile(list []Tool) (Tools, error) {
	all := Tools{}
	for _, t := range list {
		v, err := toolschema.Compile(t.Spec)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Spec.Name, err)
		}
		if !t.Spec.Idempotent {
			return nil, fmt.Errorf("tool %s: it must be idempotent, because a core that stops does not wait for it", t.Spec.Name)
		}
		t.Spec.Args = v.Schema()
		all[t.Spec.Name] = compiled{t, v}
	}
	return all, nil
}

// Run carries out an attempt.
func (all Tools) Run(ctx context.Context, q executor.Request, _ func(string)) executor.Answer {
	fail := func(code tool.Code, why string, details ...string) executor.Answer {
		r := tool.Failure(code, why, details...)
		return executor.Answer{Result: &r}
	}
	t, known := all[q.Tool.Name]
	if !known {
		return fail(tool.CodeUnknownTool, "core has no tool "+q.Tool.Name)
	}
	args, wrong := t.args.Validate(q.Tool.Args)
	if len(wrong) > 0 {
		return fail(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", wrong...)
	}
	c := Call{
		Ref: subject.Ref{Agent: q.Agent, Session: q.Session}, ToolCall: *q.Tool, ID: q.Call, Attempt: q.Attempt,
	}
	c.Args = args
	return t.Tool.Run(ctx, c)
}

// Decode reads the arguments of a call.
func Decode[T any](c Call) (args T, failed *tool.Result) {
	if err := json.Unmarshal(c.Args, &args); err != nil {
		r := tool.Failure(tool.CodeInvalidArgs, err.Error())
		return args, &r
	}
	return args, nil
}

// Serve offers the tools until ctx ends.
func Serve(ctx context.Context, b *journal.Journal, log *slog.Logger, list []Tool, pools ...executor.Pool) error {
	all, err := Compile(list)
	if err != nil {
		return err
	}
	specs := make([]tool.Spec, len(list))
	for i, t := range list {
		specs[i] = all[t.Spec.Name].Spec
	}
	return engine.Serve(ctx, b, engine.Config{
		Kind: subject.Runner, Service: coreapi.ServiceName, Offer: engine.Offer{Tools: specs}, Work: all.Run,
		Pools: pools, DrainTimeout: drain, Logger: log,
	})
}

package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
)

// Call is one call of a tool.
type Call struct {
	Agent   subject.Agent
	Session subject.Session
	Turn    string
	ID      string // the call's id
	Attempt string
	Args    json.RawMessage
	// Store keeps artifacts of the call, whose names begin with Prefix.
	Store result.Store
	// Progress reports the progress to people, in a few words.
	Progress func(string)
	// Key names the call towards other systems: an idempotency key. It is the same in all
	// attempts, and unguessable.
	Key string
	// After lists the labels of the texts from outside that the call follows, at most tool.MaxAfter.
	// They belong to whatever text the tool keeps.
	After []string
	// Begin records that the effect of the call is about to begin. A tool with a Probe calls it
	// right before the first act that cannot be taken back, and must not act after an error.
	Begin func(ctx context.Context) error
}

// Prefix returns the prefix of the names of all artifacts of the call.
func (c Call) Prefix() string {
	return result.Name(subject.Ref{Agent: c.Agent, Session: c.Session}, c.ID, c.Attempt) + "/"
}

// Tool is a tool that this process runs.
type Tool struct {
	Spec tool.Spec
	Run  func(ctx context.Context, c Call) tool.Result
	// Probe finds out what became of an earlier attempt that called Begin, and whose result is
	// unknown. It returns the result of that attempt; or a failure with tool.CodeNotRun if the
	// attempt certainly had no effect and never will; or one with tool.CodeOutcomeUnknown. Where
	// the other system recognizes a repeated key, it may repeat what the attempt did. Nil: the
	// outcome stays unknown.
	Probe func(ctx context.Context, c Call, b Begun) tool.Result
}

// Begun is what is known about an attempt whose result is unknown.
type Begun = tool.Begun

// New returns a tool that runs a function with decoded arguments. The fields of
// A are those of the spec's schema.
func New[A any](spec tool.Spec, run func(ctx context.Context, c Call, args A) tool.Result) Tool {
	return Tool{Spec: spec, Run: func(ctx context.Context, c Call) tool.Result {
		var args A
		if len(bytes.TrimSpace(c.Args)) > 0 {
			if err := json.Unmarshal(c.Args, &args); err != nil {
				return tool.Failure(tool.CodeInvalidArgs, "reading the arguments: "+err.Error())
			}
		}
		return run(ctx, c, args)
	}}
}

// Labelled returns the result of a call with the labels of the texts from outside that it holds.
func Labelled(r tool.Result, after []string) tool.Result {
	if len(after) > 0 {
		r.Metadata = maps.Clone(r.Metadata)
		if r.Metadata == nil {
			r.Metadata = map[string]any{}
		}
		r.Metadata[tool.MetadataAfter] = after
	}
	return r
}

// Fail returns the result of a call that the tool could not carry out.
func Fail(err error, details ...string) tool.Result {
	return tool.Failure(tool.CodeFailed, err.Error(), details...)
}

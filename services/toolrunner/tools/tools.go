package tools

import (
	"bytes"
	"context"
	"encoding/json"

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
}

// Prefix returns the prefix of the names of all artifacts of the call.
func (c Call) Prefix() string {
	return result.Name(subject.Ref{Agent: c.Agent, Session: c.Session}, c.ID, c.Attempt) + "/"
}

// Tool is a tool that this process runs.
type Tool struct {
	Spec tool.Spec
	Run  func(ctx context.Context, c Call) tool.Result
}

// New returns a tool that runs a function with decoded arguments. The fields of
// A are those of the spec's schema.
func New[A any](spec tool.Spec, run func(ctx context.Context, c Call, args A) tool.Result) Tool {
	return Tool{spec, func(ctx context.Context, c Call) tool.Result {
		var args A
		if len(bytes.TrimSpace(c.Args)) > 0 {
			if err := json.Unmarshal(c.Args, &args); err != nil {
				return tool.Failure(tool.CodeInvalidArgs, "reading the arguments: "+err.Error())
			}
		}
		return run(ctx, c, args)
	}}
}

// Fail returns the result of a call that the tool could not carry out.
func Fail(err error, details ...string) tool.Result {
	return tool.Failure(tool.CodeFailed, err.Error(), details...)
}

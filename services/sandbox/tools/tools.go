package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// Pool is the pool of slots that the tools compete for.
const Pool = "sandbox"

// Time limits of a run.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 10 * time.Minute
	// Around bounds the time of a call outside of its run: waiting for the session's sandbox,
	// starting one, installing packages, storing artifacts.
	Around = 5 * time.Minute
)

// fileTimeout bounds a call that works with files.
const fileTimeout = 2 * time.Minute

// Call identifies an attempt of a call.
type Call struct {
	subject.Ref
	ID      string
	Attempt string
}

// Prefix returns the prefix of the names of all artifacts of the call.
func (c Call) Prefix() string {
	return result.Name(c.Ref, c.ID, c.Attempt) + "/"
}

// Store keeps artifacts; *bus.Bus implements it.
type Store interface {
	PutArtifact(ctx context.Context, name string, data []byte) error
	GetArtifact(ctx context.Context, name string) ([]byte, error)
}

// Job is the work of a call.
type Job struct {
	// Run is the run to execute; nil: call Do.
	Run *agent.Run
	Do  func(ctx context.Context, conn *agent.Conn, c Call, store Store) (tool.Result, error)
	// Reads reports that the job changes no file.
	Reads bool
	// Packages are the packages that the run requires, unparsed.
	Packages []string
	// Fresh requests a sandbox for this call only.
	Fresh bool
}

// Tool is a tool of the sandbox. Read receives arguments that match the schema, with the
// defaults filled in; its error is for the model.
type Tool struct {
	Spec tool.Spec
	Read func(args json.RawMessage) (Job, error)
}

// All returns all tools.
func All() []Tool {
	return append([]Tool{Python(), shellTool()}, Files()...)
}

// define completes a spec with the fields that all tools have in common.
func define[A any](spec tool.Spec, read func(args A) (Job, error)) Tool {
	spec.Pool, spec.Sticky = Pool, true
	return Tool{spec, func(raw json.RawMessage) (Job, error) {
		var args A
		if len(bytes.TrimSpace(raw)) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return Job{}, fmt.Errorf("reading the arguments: %w", err)
			}
		}
		return read(args)
	}}
}

// Failure returns the result of a call that the sandbox refused, with the refusal's text.
// It reports false for errors that the model did not cause.
func Failure(err error) (tool.Result, bool) {
	var refused *agent.Error
	var invalid *Error
	switch {
	case errors.As(err, &refused):
		return tool.Failure(tool.CodeFailed, refused.Message, refused.Code), true
	case errors.As(err, &invalid):
		return tool.Failure(tool.CodeFailed, invalid.Message), true
	}
	return tool.Result{}, false
}

// Error is a request that cannot be fulfilled, with a text for the model.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

func failf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// inside returns a path as the agent expects it: relative to the workspace. Code in the
// sandbox, and therefore models, use absolute paths below it; all other paths stay
// unchanged.
func inside(p string) string {
	if p == driver.Workspace {
		return "."
	}
	if rest, ok := strings.CutPrefix(p, driver.Workspace+"/"); ok {
		return strings.TrimLeft(rest, "/")
	}
	return p
}

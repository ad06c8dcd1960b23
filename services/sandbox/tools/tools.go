package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// Pool is the pool of slots that the tools compete for.
const Pool = "sandbox"

// The times of a run.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 10 * time.Minute
	// Around is what a call may take beside its run: waiting for the session's sandbox,
	// starting one, installing packages, storing artifacts.
	Around = 5 * time.Minute
)

// fileTimeout bounds a call that works with files.
const fileTimeout = 2 * time.Minute

// Call is whose call it is.
type Call struct {
	subject.Ref
	ID      string
	Attempt string
}

// Prefix is that of the names of all artifacts that the call makes.
func (c Call) Prefix() string {
	return strings.Join([]string{string(c.Agent), string(c.Session), c.ID, c.Attempt}, "/") + "/"
}

// Store keeps artifacts; a *bus.Bus is one.
type Store interface {
	PutArtifact(ctx context.Context, name string, data []byte) error
	GetArtifact(ctx context.Context, name string) ([]byte, error)
}

// Job is what a call is to do.
type Job struct {
	// Run is to be executed; nil: Do is to be called.
	Run *agent.Run
	Do  func(ctx context.Context, conn *agent.Conn, c Call, store Store) (any, error)
	// Packages are wanted by the run, as they were written.
	Packages []string
	// Fresh wants a sandbox for this call alone.
	Fresh bool
}

// Tool is a tool of the sandbox. Read is given arguments that fit the schema, defaults
// filled in; its error is for the model.
type Tool struct {
	Spec tool.Spec
	Read func(args json.RawMessage) (Job, error)
}

// All are the tools.
func All() []Tool {
	return append([]Tool{Python(), Shell()}, Files()...)
}

// define completes a spec with what all tools have in common.
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

// Failure is the result of a call that the sandbox refused, in its own words. It
// reports false for errors that are none of the model's making.
func Failure(err error) (tool.Result, bool) {
	var refused *agent.Error
	var told *Error
	switch {
	case errors.As(err, &refused):
		return tool.Failure(tool.CodeFailed, refused.Message, refused.Code), true
	case errors.As(err, &told):
		return tool.Failure(tool.CodeFailed, told.Message), true
	}
	return tool.Result{}, false
}

// Error is what a call asked for in vain, in words for the model.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

func failf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// inside gives a path as the agent takes it: relative to the workspace. Absolute paths
// below it are what code inside uses, and models with it; others stay as they are.
func inside(p string) string {
	if p == driver.Workspace {
		return "."
	}
	if rest, ok := strings.CutPrefix(p, driver.Workspace+"/"); ok {
		return strings.TrimLeft(rest, "/")
	}
	return p
}

// ArtifactPath is a path inside the sandbox as part of an artifact's name. It reports
// whether it can be one: what is inside is not trusted to name files.
func ArtifactPath(p string) (string, bool) {
	if p == "" || len(p) > maxName || !utf8.ValidString(p) || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") {
		return "", false
	}
	for _, r := range p {
		if r < ' ' || r == 0x7f {
			return "", false
		}
	}
	return p, true
}

// maxName is the longest path in an artifact's name, in bytes.
const maxName = 512

package sandbox

import (
	"context"
	"errors"
	"fmt"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/snapshot"
	"skandha.dev/services/sandbox/tools"
)

// loss is why a session has no sandbox any more although it had one.
type loss struct {
	why     string // for the model; empty: it had none
	unsaved string // the first call whose changes were not saved; empty: none is known
	cause   error  // why they were not
}

// saving reports whether files of sessions are saved.
func (s *Service) saving() bool { return s.saver.store != nil }

// find looks for the saved files of a session that has lost its sandbox; nil: there are none.
func (s *Service) find(ctx context.Context, ref subject.Ref, lease string, l loss) (*workspace.Head, error) {
	if l.why == "" || !s.saving() {
		return nil, nil //nolint:nilnil // there are none
	}
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	h, found, err := snapshot.Find(ctx, s.saver.store, ref, lease)
	switch {
	case errors.Is(err, workspace.ErrDamaged):
		s.log.ErrorContext(ctx, "the saved files of a session are damaged", "agent", ref.Agent, "session", ref.Session, "error", err)
		return nil, nil //nolint:nilnil // there are none
	case err != nil:
		return nil, later(err)
	case !found:
		return nil, nil //nolint:nilnil // there are none
	}
	return &h, nil
}

// later is the error of a call whose session's files cannot be restored now.
func later(err error) error {
	return &tools.Error{Message: fmt.Sprintf("the files of the session cannot be restored now (%v); try again", err)}
}

// packagesOf returns the packages that are installed for a session with saved files.
func packagesOf(h *workspace.Head) deps.Requirements {
	reqs, _ := deps.Parse(h.Packages) // what is no longer admitted is left out
	return reqs
}

// restore puts the saved files of a session into its new sandbox. It returns nil, and why they are lost, if they
// are damaged: then the sandbox may hold some of them.
func (s *Service) restore(ctx context.Context, h *workspace.Head, into snapshot.Sandbox) (k *kept, lost error, err error) {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	ctx, end := s.steps.begin(ctx, stepRestore)
	defer func() { end(errors.Join(lost, err)) }()
	c, err := snapshot.Restore(ctx, s.saver.store, s.saver.limits, *h, s.bus.Instance(), into)
	var refused *agent.Error
	switch {
	case errors.Is(err, workspace.ErrDamaged):
		s.log.ErrorContext(ctx, "the saved files of a session are damaged", "agent", h.Agent, "session", h.Session, "error", err)
		return nil, err, nil
	case errors.As(err, &refused):
		return nil, nil, &tools.Error{Message: fmt.Sprintf("the files of the session (%d MiB) cannot be restored: %s; "+
			"/reset begins with an empty workspace", h.Bytes>>20, refused.Message)}
	case err != nil:
		return nil, nil, later(err)
	}
	s.counts.restores.Add(1)
	return &kept{copy: c}, nil, nil
}

// notice returns what the model must know about the new sandbox of a session that has lost one; h are the files
// that were restored, nil: none.
func (l loss) notice(h *workspace.Head) string {
	if l.why == "" {
		return ""
	}
	if h == nil {
		return fmt.Sprintf("this is a new sandbox; files of earlier calls are lost (reason: %s)", l.why)
	}
	text := fmt.Sprintf("this is a new sandbox (reason: %s). The files in /workspace are restored, as they were after "+
		"call %s; everything else in the sandbox, such as files in /tmp, is gone", l.why, h.Call)
	unsaved := l.unsaved
	if unsaved == "" {
		unsaved = h.Unsaved
	}
	switch {
	case unsaved == "":
	case l.cause != nil:
		text += fmt.Sprintf(". Changes since call %s are lost: %v", unsaved, l.cause)
	default:
		text += fmt.Sprintf(". Changes since call %s were not saved in time and are lost", unsaved)
	}
	return text
}

// fresh returns what is saved of a session's new, empty sandbox: nothing yet.
func (s *Service) fresh(ref subject.Ref, lease string) *kept {
	if !s.saving() {
		return nil
	}
	return &kept{copy: snapshot.New(s.saver.store, s.saver.limits, ref, lease, s.bus.Instance())}
}

package mcp

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// handle names a turn in the log: by the commit in which core took up its input, and by the input's
// id, which is random unless the client has chosen it. Every bridge finds the turn with it, and sees
// there whose it is.
type handle struct {
	ref    subject.Ref
	commit uint64
	id     string
}

// String is the inverse of parseHandle.
func (h handle) String() string {
	return strings.Join([]string{
		string(h.ref.Agent), string(h.ref.Session), strconv.FormatUint(h.commit, 10), h.id,
	}, ".")
}

func parseHandle(s string) (h handle, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 || !subject.Valid(parts[0]) || !subject.Valid(parts[1]) || !subject.Valid(parts[3]) {
		return h, false
	}
	n, err := strconv.ParseUint(parts[2], 10, 64)
	h = handle{subject.Ref{Agent: subject.Agent(parts[0]), Session: subject.Session(parts[1])}, n, parts[3]}
	return h, err == nil && n > 0 && h.String() == s
}

// errNoTurn says that a handle names no turn of the principal. It does not say why.
var errNoTurn = &contract.Error{
	Code: contract.CodeNotFound, Field: "handle", Message: "no such turn: it is unknown, is not yours, has expired, " +
		"or has left the log",
}

// found is a turn that a handle names. Its input has been read, and nothing after it.
type found struct {
	handle
	turn  *turn.Turn
	input *contract.Input
}

// find finds a turn of the caller's. What it returns is followed until ctx ends, or is closed.
func (d *Handler) find(ctx context.Context, c *caller, text string) (*found, error) {
	h, ok := parseHandle(text)
	if !ok {
		return nil, errNoTurn
	}
	t, err := turn.Attach(ctx, d.deps.Backend, c.p, h.ref, strconv.FormatUint(h.commit, 10)+".h", "mcp")
	if hidden(err) {
		err = errNoTurn
	}
	if err != nil {
		return nil, err
	}
	in, err := d.inputOf(ctx, c, h, t)
	if err != nil {
		t.Close()
		return nil, err
	}
	t.Follow(turnID(in))
	return &found{h, t, in}, nil
}

// inputOf reads the input. This bridge may see its commit a moment later than the one that has made
// the handle.
func (d *Handler) inputOf(ctx context.Context, c *caller, h handle, t *turn.Turn) (*contract.Input, error) {
	lag, cancel := context.WithTimeout(ctx, d.cfg.Lag)
	defer cancel()
	for {
		v, id, err := t.Session.Next(lag)
		switch {
		case err != nil && lag.Err() != nil && ctx.Err() == nil:
			return nil, errNoTurn
		case err != nil:
			if e, ok := errors.AsType[*contract.Error](err); ok && e.Code == contract.CodeInvalid {
				return nil, errNoTurn // the log was replaced
			}
			return nil, err
		case id != "" && turn.CommitOf(id) > h.commit:
			return nil, errNoTurn
		}
		in, ok := v.(*contract.Input)
		if ok && turn.CommitOf(id) == h.commit && in.InputID == h.id && in.Writer == c.p.Writer {
			return in, nil
		}
	}
}

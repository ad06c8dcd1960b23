// Package submit stores causes: inputs, commands, answers to confirmation requests, and
// cancels. Every service and the command store theirs with it.
//
// # Subjects
//
//	agent.<agent>.<session>.sense.{input,command,confirmation,cancel}.<writer>
//
// # Guarantee
//
// A method returns without error once the log has acknowledged the cause: from then on an
// input ends in exactly one terminal event. Inputs and commands are stored under their id,
// so that storing the same one again counts once; one without an id gets a random one.
//
// # Failure
//
// [Why] says what an error of a method means, and whether the cause may be stored.
package submit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Sender stores causes under a writer's name.
type Sender struct {
	Bus    *bus.Bus
	Writer subject.Writer
}

// Say stores an input and returns its sequence.
func (s Sender) Say(ctx context.Context, ref subject.Ref, in event.Input) (uint64, error) {
	if in.ID == "" {
		in.ID = NewID()
	}
	if err := in.Check(); err != nil {
		return 0, err
	}
	return s.store(ctx, ref, subject.Input, in.ID, in)
}

// Command stores a slash command.
func (s Sender) Command(ctx context.Context, ref subject.Ref, name string, args ...string) (uint64, error) {
	return s.Run(ctx, ref, event.Command{Name: name, Args: args})
}

// Run stores a slash command.
func (s Sender) Run(ctx context.Context, ref subject.Ref, cmd event.Command) (uint64, error) {
	if cmd.ID == "" {
		cmd.ID = NewID()
	}
	return s.store(ctx, ref, subject.Command, cmd.ID, cmd)
}

// Confirm answers a confirmation request, for exactly the arguments it showed.
func (s Sender) Confirm(
	ctx context.Context, ref subject.Ref, q event.ToolCallRequest, approved bool, reason string,
) error {
	_, err := s.Answer(ctx, ref, event.Confirmation{
		ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: approved, Reason: reason,
	})
	return err
}

// Answer stores an answer to a confirmation request and returns its sequence.
func (s Sender) Answer(ctx context.Context, ref subject.Ref, a event.Confirmation) (uint64, error) {
	return s.store(ctx, ref, subject.Confirmation, NewID(), a)
}

// Cancel stops the turn of the input that was acknowledged with seq.
func (s Sender) Cancel(ctx context.Context, ref subject.Ref, seq uint64, reason string) error {
	_, err := s.Stop(ctx, ref, event.Cancel{Sequence: seq, Reason: reason})
	return err
}

// Stop stores a request to end a turn and returns its sequence.
func (s Sender) Stop(ctx context.Context, ref subject.Ref, stop event.Cancel) (uint64, error) {
	return s.store(ctx, ref, subject.Cancel, NewID(), stop)
}

func (s Sender) store(
	ctx context.Context, ref subject.Ref, kind subject.CauseKind, id string, body any,
) (uint64, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	return s.Bus.PublishCause(ctx, ref, kind, s.Writer, id, b)
}

// NewID returns a random id for an input or a command.
func NewID() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

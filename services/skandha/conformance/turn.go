package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/turn"
)

// errAsked ends the following of a turn that waits for a person.
var errAsked = errors.New("waits for a person to confirm a call")

// turn sends an input to an agent and returns what plugins did until the turn ended,
// or a person was asked.
func (r *rig) turn(ctx context.Context, ref subject.Ref, text string) (verdicts []hook.Verdict, how string, err error) {
	items, err := follow.With(ctx, r.bus, ref, follow.Position{}, follow.Options{
		Log: slog.New(slog.DiscardHandler), Commits: func() bool { return true },
	})
	if err != nil {
		return nil, "", err
	}
	id := string(ref.Session)
	seq, err := r.bus.PublishCause(ctx, ref, subject.Input, "conformance", id, mustJSON(event.Input{Text: text, ID: id}))
	if err != nil {
		return nil, "", fmt.Errorf("sending an input to the agent: %w", err)
	}
	in := turn.Input{Sequence: seq}
	end, err := in.Follow(turn.Items(ctx, items), func(i follow.Item) error {
		if i.Whole != nil {
			verdicts = append(verdicts, i.Whole.Header.Hooks...)
		}
		if i.Event.Type == event.TypeToolCallRequest {
			return errAsked
		}
		return nil
	})
	switch {
	case errors.Is(err, errAsked):
		return verdicts, err.Error(), nil
	case err != nil:
		return nil, "", fmt.Errorf("the turn did not end: %w", err)
	case end.Failed != nil:
		return verdicts, fmt.Sprintf("ended with %s: %s", end.Failed.Code, end.Failed.Reason), nil
	}
	return verdicts, "ended with an answer", nil
}

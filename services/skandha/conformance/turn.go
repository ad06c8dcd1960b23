package conformance

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// lookAgain is how long a turn is left alone between two looks at its log.
const lookAgain = 50 * time.Millisecond

// turn says something to an agent and gives what plugins did until the turn ended,
// or a person was asked.
func (r *rig) turn(ctx context.Context, ref subject.Ref, text string) (verdicts []hook.Verdict, how string, err error) {
	id := string(ref.Session)
	if _, err := r.bus.PublishCause(ctx, ref, subject.Input, "conformance", id, mustJSON(event.Input{Text: text, ID: id})); err != nil {
		return nil, "", fmt.Errorf("saying something to the agent: %w", err)
	}
	last := uint64(0)
	for ctx.Err() == nil {
		for m, err := range r.bus.Commits(ctx, ref, last) {
			if err != nil {
				break // ctx ended, or the next look finds it
			}
			c, err := event.DecodeCommit(ref, m.Data)
			if err != nil {
				return nil, "", fmt.Errorf("reading commit %d: %w", m.Seq, err)
			}
			last = m.Seq
			verdicts = append(verdicts, c.Header.Hooks...)
			if how := ending(c.Events); how != "" {
				return verdicts, how, nil
			}
		}
		pause(ctx, lookAgain)
	}
	return nil, "", fmt.Errorf("the turn has not ended: %w", ctx.Err())
}

// ending says how a turn ended, or came to stand; empty: it goes on.
func ending(events []event.Event) string {
	for _, e := range events {
		switch e.Type {
		case event.TypeRecorded:
			return "ended with an answer"
		case event.TypeTurnFailed:
			var f event.TurnFailed
			_ = e.DataAs(&f) // the code is for people
			return fmt.Sprintf("ended with %s: %s", f.Code, f.Reason)
		case event.TypeToolCallRequest:
			return "waits for a person to confirm a call"
		}
	}
	return ""
}

package conformance

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// lookAgain is the pause between two reads of a turn's log.
const lookAgain = 50 * time.Millisecond

// turn sends an input to an agent and returns what plugins did until the turn ended,
// or a person was asked.
func (r *rig) turn(ctx context.Context, ref subject.Ref, text string) (verdicts []hook.Verdict, how string, err error) {
	id := string(ref.Session)
	if _, err := r.bus.PublishCause(ctx, ref, subject.Input, "conformance", id,
		mustJSON(event.Input{Text: text, ID: id})); err != nil {
		return nil, "", fmt.Errorf("sending an input to the agent: %w", err)
	}
	last := uint64(0)
	for ctx.Err() == nil {
		for m, err := range r.bus.Commits(ctx, ref, last) {
			if err != nil {
				break // ctx ended, or the next read finds it
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
	return nil, "", fmt.Errorf("the turn did not end: %w", ctx.Err())
}

// ending returns how a turn ended, or that it waits for a person; empty: it continues.
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

package main

import (
	"context"
	"fmt"
	"iter"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// past yields the causes and commits of a session from the beginning. What has left the log comes from the archive,
// which core reads.
func (c *connection) past(ctx context.Context, ref subject.Ref) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		trimmed, err := c.trimmed(ctx, ref)
		if err != nil {
			yield(bus.StoredMsg{}, err)
			return
		}
		if !trimmed { // core need not run
			c.Journal.Messages(ctx, ref, 0)(yield)
			return
		}
		ask := coreapi.MessagesQuery{Ref: ref, Limit: 1000}
		for {
			var page coreapi.MessagesPage
			if err := c.Ask(ctx, coreapi.VerbMessages, ask, &page); err != nil {
				yield(bus.StoredMsg{}, fmt.Errorf("reading what has left the log: %w", err))
				return
			}
			for _, m := range page.Messages {
				if !yield(bus.StoredMsg{Seq: m.Sequence, Time: m.Time, Subject: m.Subject, Data: m.Body}, nil) {
					return
				}
			}
			if ask.After = page.Next; page.Next == 0 {
				return
			}
		}
	}
}

// trimmed reports whether the session's first commits are no longer in the log.
func (c *connection) trimmed(ctx context.Context, ref subject.Ref) (bool, error) {
	for m, err := range c.Journal.Commits(ctx, ref, 0) {
		if err != nil {
			return false, err
		}
		first, err := event.DecodeCommit(ref, m.Data)
		return err == nil && first.Header.Prev > 0, nil
	}
	return false, nil
}

package inspect

import (
	"context"
	"errors"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// The limits of listTurns.
const (
	defaultTurns = 20
	maxTurns     = 100

	walkCommits = 1000     // commits read for one page of turns
	walkBytes   = 32 << 20 // bytes of these commits
)

type turnsQuery struct {
	sessionQuery
	Limit  int
	Before string
}

func (q *turnsQuery) params() []request.Param {
	return append(q.sessionQuery.params(), request.Param{Name: "limit", Into: &q.Limit},
		request.Param{Name: "before", Into: &q.Before})
}

// listTurns reads the log backwards, commit by commit, until the page is full.
func (i *inspector) listTurns(ctx context.Context, p contract.Principal, q turnsQuery) (timeline.TurnsPage, error) {
	ref, err := reach(p, q.Agent, q.Session)
	if err != nil {
		return timeline.TurnsPage{}, err
	}
	limit, err := bounded(q.Limit, defaultTurns, maxTurns)
	if err != nil {
		return timeline.TurnsPage{}, err
	}
	w, at, ok := timeline.NewWalk(limit, q.Before)
	if !ok {
		return timeline.TurnsPage{}, contract.Invalid("before", "invalid cursor; use `next` from the previous page")
	}
	return i.backwards(ctx, ref, at, w)
}

func (i *inspector) backwards(ctx context.Context, ref subject.Ref, at uint64, w *timeline.Walk) (timeline.TurnsPage, error) {
	read, size := 0, 0
	for c, err := range turn.Back(ctx, i.client.Journal, ref, at) {
		switch {
		case bus.CodeOf(err) == bus.CodeNotFound:
			return w.Page(0, "earlier turns have left the log; skandha sessions tail shows them if they are in the archive"), nil
		case errors.Is(err, turn.ErrOther):
			return timeline.TurnsPage{}, contract.Invalid("before", "invalid cursor; it does not belong to this session")
		case err != nil:
			return timeline.TurnsPage{}, err
		case read == walkCommits || size > walkBytes:
			return w.Page(c.Sequence, fmt.Sprintf("only %d commits were read; request the next page", read)), nil
		}
		read, size = read+1, size+c.Bytes
		if w.Take(c) {
			return w.Page(c.Header.Prev, ""), nil
		}
	}
	return w.Page(0, ""), nil
}

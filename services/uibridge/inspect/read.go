package inspect

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

type timelineQuery struct {
	sessionQuery
	Turn string
}

func (q *timelineQuery) params() []request.Param {
	return append(q.sessionQuery.params(), request.Param{Name: "turn", Into: &q.Turn, Must: true})
}

// getTimeline reads the turn's commits, from its input to its end, and builds the waterfall
// from them.
func (i *inspector) getTimeline(ctx context.Context, p contract.Principal, q timelineQuery) (timeline.Timeline, error) {
	ref, err := reach(p, q.Agent, q.Session)
	if err != nil {
		return timeline.Timeline{}, err
	}
	seq := turn.SequenceOf(q.Turn)
	if seq == 0 {
		return timeline.Timeline{}, contract.Invalid("turn", fmt.Sprintf(
			"is %q; want t<sequence of the input>, such as t17", text.Cut(q.Turn, 40)))
	}
	commits, cut, err := timeline.Read(ctx, i.client.Journal, ref, seq)
	if err != nil {
		return timeline.Timeline{}, err
	}
	if len(commits) == 0 {
		return timeline.Timeline{}, &contract.Error{
			Code:    contract.CodeNotFound,
			Message: fmt.Sprintf("session %s has no turn t%d; it does not exist yet, or was purged", ref, seq),
		}
	}
	tl := timeline.Build(seq, commits, time.Now())
	if cut != "" {
		tl.Cut = append(tl.Cut, cut)
	}
	return tl, nil
}

package inspect

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
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
func (i *inspector) getTimeline(ctx context.Context, p contract.Principal, q timelineQuery) (Timeline, error) {
	ref, err := reach(p, q.Agent, q.Session)
	if err != nil {
		return Timeline{}, err
	}
	seq := turn.SequenceOf(q.Turn)
	if seq == 0 {
		return Timeline{}, contract.Invalid("turn", fmt.Sprintf(
			"is %q; want t<sequence of the input>, such as t17", text.Cut(q.Turn, 40)))
	}
	commits, cut, err := i.commitsOf(ctx, ref, seq)
	if err != nil {
		return Timeline{}, err
	}
	if len(commits) == 0 {
		return Timeline{}, &contract.Error{
			Code:    contract.CodeNotFound,
			Message: fmt.Sprintf("session %s has no turn t%d; it does not exist yet, or was purged", ref, seq),
		}
	}
	tl := Build(seq, commits, time.Now())
	if cut != "" {
		tl.Cut = append(tl.Cut, cut)
	}
	return tl, nil
}

// commitsOf reads the commits that concern the turn, from the one that took up its input to
// the one that ended it.
func (i *inspector) commitsOf(ctx context.Context, ref subject.Ref, seq uint64) (out []turn.Stored, cut string, err error) {
	read, size := 0, 0
	for m, err := range i.client.Journal.Commits(ctx, ref, seq-1) {
		if err != nil {
			return nil, "", err
		}
		c, err := turn.Decode(ref, m)
		if err != nil {
			return nil, "", err
		}
		about, ends := concerns(c, seq)
		if about {
			out = append(out, c)
		}
		// Causes are processed in the order of the log: this one was processed, and began no
		// turn.
		if ends || len(out) == 0 && c.Header.Cursor >= seq {
			break
		}
		read, size = read+1, size+c.Bytes
		if read >= scanCommits || size >= scanBytes || len(out) >= turnCommits {
			return out, fmt.Sprintf(
				"the turn continues: read %d commits of the session, %d of them of this turn", read, len(out)), nil
		}
	}
	return out, "", nil
}

// concerns reports whether a commit concerns the turn of the input, and whether it ends it.
func concerns(c turn.Stored, seq uint64) (about, ends bool) {
	in, id := turn.Input{Sequence: seq}, event.TurnID(seq)
	about = c.Header.Trigger.Sequence == seq
	for _, e := range c.Events {
		in.See(e)
		about = about || e.Turn == id
	}
	return about || in.Perceived.Sequence != 0 || in.Over(), in.Over()
}

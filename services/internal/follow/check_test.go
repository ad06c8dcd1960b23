package follow

import (
	"fmt"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
)

// A follower whose position was not in a new log yet must not take what the log has stored
// there since for its own commit. It did when the log grew between two of its questions.
func TestALogThatGrowsWhileItIsCheckedIsAnother(t *testing.T) {
	ctx, b := natstest.Context(t), natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	ref := subject.Ref{Agent: "main", Session: "s"}
	var ids []string
	prev := uint64(0)
	for range 3 {
		e := event.New(ref, fmt.Sprintf("e%d", prev), "test", event.UIReady{})
		body, err := event.Commit{
			Ref: ref, Header: event.Header{CommitID: e.ID, Prev: prev, Trigger: event.Trigger{Kind: event.ByProgress}},
			Events: []event.Event{e},
		}.Encode()
		if err == nil {
			prev, err = b.AppendCommit(ctx, ref, body, prev)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	for name, c := range map[string]struct {
		id   string
		want bool
	}{"of the log before": {"another", false}, "of this log": {ids[1], true}} {
		f := &follower{bus: b, ref: ref, at: Position{Commit: 2}, id: c.id}
		if held, err := f.goesOn(ctx); err != nil || held != c.want {
			t.Errorf("a position %s: it goes on is %t (%v), want %t", name, held, err, c.want)
		}
	}
}

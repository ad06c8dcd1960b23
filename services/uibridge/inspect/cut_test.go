package inspect

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/turn"
)

// A detail lists its shortened fields, also when a value came from another span: from a
// plan's attempt, or from a run that is not shown because nothing else happened.
func TestADetailSaysWhatOfItIsCut(t *testing.T) {
	const c0, c1, c2 = "t1-p1-c0", "t1-p1-c1", "t1-p1-c2"
	large, err := json.Marshal(strings.Repeat("x", maxDetailBytes))
	if err != nil {
		t.Fatal(err)
	}
	asked := asks("t1", 1, 1)
	asked.Notes = slices.Repeat([]string{"be brief"}, maxListed+1)
	bare, grown, after := wants(c0, "file:write"), wants(c1, "file:write"), wants(c2, "file:write",
		slices.Repeat([]string{c0}, maxListed+1)...)
	bare.Args = large // before references were resolved
	more := gives(c1, "file:write", 1)
	more.Args = large
	tl := Build(1, []turn.Stored{
		commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asked),
		commit(3, 100, reply("t1-p1"), nil, "t1", answers("t1", 1, strings.Repeat("x", maxDetailBytes+1), bare, grown, after),
			gives(c0, "file:write", 1), more),
		commit(4, 200, reply(c0), nil, "t1", done(c0, "file:write")),
		commit(5, 300, reply(c1), nil, "t1", done(c1, "file:write")),
	}, at(400))
	for id, want := range map[string][]string{
		"sense": nil, "t1-p1": {"notes", "text"}, c0: nil, c1: {"args"}, c2: {"depends_on"},
	} {
		i := slices.IndexFunc(tl.Spans, func(s Span) bool { return s.ID == id })
		if i < 0 {
			t.Fatalf("there is no span %s:\n%s", id, draw(tl))
		}
		if got := slices.Sorted(slices.Values(tl.Spans[i].Detail.Cut)); !slices.Equal(got, want) {
			t.Errorf("%s: cut are %q, want %q", id, got, want)
		}
	}
	stated(t, "getTimeline", tl)
}

package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
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

// The timeline of a turn of a thousand rounds, with large arguments and many plugins, stays
// small enough to be sent, and lists what is left out.
func TestALongTurnIsCut(t *testing.T) {
	large, err := json.Marshal(strings.Repeat("é", 20_000))
	if err != nil {
		t.Fatal(err)
	}
	commits := []turn.Stored{commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1))}
	for i := 1; i <= 1000; i++ {
		call := fmt.Sprintf("t1-p%d-c0", i)
		step := wants(call, "file:write")
		step.Args = large
		result := done(call, "file:write")
		result.Result.Data = large
		given := gives(call, "file:write", 1)
		given.Args = large
		commits = append(commits,
			commit(uint64(4*i), 10*i, reply(fmt.Sprintf("t1-p%d", i)),
				[]hook.Verdict{
					verdict(hook.BeforeAct, "a", call, hook.Continue, 10), verdict(hook.BeforeAct, "b", call, hook.Continue, 10),
				}, "t1",
				answers("t1", i, "", step), given),
			commit(uint64(4*i+1), 10*i+5, reply(call), nil, "t1", result, asks("t1", i+1, 1)))
	}
	commits = append(commits, commit(9000, 20_000, reply("t1-p1001"), nil, "t1", answers("t1", 1001, "ok"), ended(1)))
	tl := Build(1, commits, start)
	checkShape(t, tl)
	b, err := json.Marshal(tl)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tl.Spans); n != maxSpans {
		t.Errorf("%d spans", n)
	}
	if last := tl.Spans[len(tl.Spans)-1]; last.Kind != KindEnd || tl.Outcome != OutcomeAnswered {
		t.Errorf("its end is lost: %+v", last)
	}
	if !strings.Contains(strings.Join(tl.Cut, "; "), "(hook) are left out") {
		t.Errorf("it does not say what is left out: %q", tl.Cut)
	}
	if i := slices.IndexFunc(tl.Spans,
		func(s Span) bool { return s.Kind == KindStep }); !slices.Contains(tl.Spans[i].Detail.Cut, "args") ||
		!slices.Contains(tl.Spans[i].Detail.Cut, "result") {
		t.Errorf("it does not say what is cut: %+v", tl.Spans[i].Detail.Cut)
	}
	if len(b) > 3<<20 {
		t.Errorf("%d bytes", len(b))
	}
}

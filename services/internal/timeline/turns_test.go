package timeline

import (
	"fmt"
	"slices"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/turn"
)

// pages reads the turns of a session page by page, as listTurns does, and returns them one
// line each.
func pages(t *testing.T, commits []turn.Stored, limit int) (lines []string) {
	t.Helper()
	at, below := commits[len(commits)-1].Sequence, uint64(0)
	for range 100 {
		w := &Walk{limit: limit, below: below, rows: map[uint64]*turnRow{}}
		page, left := TurnsPage{}, false
		for i, c := range slices.Backward(commits) {
			if c.Sequence > at {
				continue
			}
			if w.Take(c) && i > 0 {
				page, left = w.Page(commits[i-1].Sequence, ""), true
				break
			}
		}
		if !left {
			page = w.Page(0, "")
		}
		stated(t, "listTurns", page)
		if len(page.Turns) > limit+2 {
			t.Fatalf("a page of %d turns, where %d were asked for", len(page.Turns), limit)
		}
		for _, r := range page.Turns {
			lines = append(lines,
				fmt.Sprintf("%s %s %q by %s, %d ms, %d rounds, %d calls, %d tokens", r.Turn, r.Outcome, r.Text, r.Writer,
					r.DurationMS, r.Rounds, r.Calls, r.Tokens))
		}
		if page.Next == "" {
			return lines
		}
		if _, err := fmt.Sscanf(page.Next, "%d-%d", &at, &below); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("there is no end")
	return nil
}

// However many turns a page has, paging backwards returns every turn once, latest first,
// with the figures of all its commits.
func TestTurnsAreListedBackwards(t *testing.T) {
	const c0 = "t11-p1-c0"
	commits := []turn.Stored{
		commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1)),
		// waits for t1
		commit(4, 10, said(3), nil, "t1", heard(3, event.Queued)),
		// while t1 goes on
		commit(6, 20, because(5, subject.Command, "ui-bob"), nil, "t1", event.Recorded{Sequence: 5, Command: "help"}),
		// waits, and is cancelled
		commit(8, 30, said(7), nil, "t1", heard(7, event.Queued)),
		// t7
		commit(10, 40, because(9, subject.Cancel, "ui-ada"), nil, "", broken(7, event.FailCancelled)),
		// waits
		commit(12, 50, said(11), nil, "t1", heard(11, event.Queued)),
		commit(13, 100, reply("t1-p1"), nil, "t1", answers("t1", 1, "one"), ended(1), heard(3, event.FromQueue),
			asks("t3", 1, 1)), // t1 ends, t3 begins
		commit(15, 110, said(14), nil, "t3", broken(14, event.FailMalformed)),
		commit(16, 200, reply("t3-p1"), nil, "t3", answers("t3", 1, "two"), ended(3), heard(11, event.FromQueue),
			asks("t11", 1, 1)),
		commit(17, 300, reply("t11-p1"), nil, "t11", answers("t11", 1, "", wants(c0, "clock:now")),
			gives(c0, "clock:now", 1)),
		commit(18, 350, reply(c0), nil, "t11", done(c0, "clock:now"), asks("t11", 2, 1)),
		commit(20, 360, said(19), nil, "t11", heard(19, event.Queued)),
	}
	want := []string{
		`t19 queued "do it" by ui-ada, 0 ms, 0 rounds, 0 calls, 0 tokens`,
		`t14 malformed "" by ui-ada, 1 ms, 0 rounds, 0 calls, 0 tokens`,
		`t11 running "do it" by ui-ada, 0 ms, 2 rounds, 1 calls, 15 tokens`,
		`t7 cancelled "do it" by ui-ada, 10 ms, 0 rounds, 0 calls, 0 tokens`,
		`t5 command "/help" by ui-bob, 1 ms, 0 rounds, 0 calls, 0 tokens`,
		`t3 answered "do it" by ui-ada, 190 ms, 1 rounds, 0 calls, 15 tokens`,
		`t1 answered "do it" by ui-ada, 100 ms, 1 rounds, 0 calls, 15 tokens`,
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		if got := pages(t, commits, limit); !slices.Equal(got, want) {
			t.Errorf("%d a page:\n%q\nwant\n%q", limit, got, want)
		}
	}
}

// A turn that failed has the figures of its events, too.
func TestATurnThatFailedHasItsFigures(t *testing.T) {
	const c0 = "t1-p1-c0"
	end := broken(1, event.FailLimitTokens)
	end.Usage = provider.Usage{InputTokens: 100, OutputTokens: 20}
	got := pages(t, []turn.Stored{
		commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1)),
		commit(3, 100, reply("t1-p1"), nil, "t1", answers("t1", 1, "", wants(c0, "clock:now")),
			failed(c0, "clock:now", tool.CodeDenied), asks("t1", 2, 1)),
		commit(4, 200, reply("t1-p2"), nil, "t1", answers("t1", 2, "x"), end),
	}, 5)
	if want := []string{`t1 limit_tokens "do it" by ui-ada, 200 ms, 2 rounds, 1 calls, 120 tokens`}; !slices.Equal(got,
		want) {
		t.Errorf("got %q", got)
	}
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "abcdef": "abcd…", "abcé": "abc…"} {
		if got := text.Cut(in, 4); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := line(" a \n\t b ", 4); got != "a b" {
		t.Errorf("in one line: %q", got)
	}
	c := clipper{most: 10, budget: 12}
	if out, cut := c.text("0123456789"); out != "0123456789" || cut {
		t.Errorf("got %q, %t", out, cut)
	}
	if out, cut := c.json([]byte(`"0123456789"`)); string(out) != `"\"012345678…"` || !cut {
		t.Errorf("got %s, %t", out, cut)
	}
	if c.room() != scarce {
		t.Errorf("the budget is used up, and there is room for %d bytes", c.room())
	}
}

package backend_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// A complete turn with a tool that a person approves, as two UIs see it.
func TestATurn(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("turn")
	ann := r.attach(contract.Attachment{Ref: ref, HTML: true, Commits: true})
	bob := r.attach(contract.Attachment{Ref: ref})
	ann.await(contract.OnAttached, 1)
	if a := last[contract.Attached](ann, contract.OnAttached); a.After != "0" || a.State != event.StateWaiting ||
		len(a.Pending) > 0 {
		t.Errorf("a session without a commit begins with %+v", a)
	}
	in := r.say(ref, `comment I will **write** it. :: file_system:write_file {"path":"a.txt","content":"x"}`)
	ann.await(contract.OnToolCallRequest, 1)
	q := last[contract.ToolCallRequest](ann, contract.OnToolCallRequest)
	if q.ToolName != "file_system:write_file" || !strings.Contains(string(q.Args), `"path":"a.txt"`) || q.Hash == "" ||
		q.SecurityWarning == nil {
		t.Errorf("asked %+v", q)
	}

	// A new feed gets the pending requests.
	late := r.attach(contract.Attachment{Ref: ref})
	late.await(contract.OnAttached, 1)
	a := last[contract.Attached](late, contract.OnAttached)
	if a.State != event.StateConfirming || a.Title == "" || len(a.Pending) != 1 {
		t.Fatalf("attached %+v, want one request that waits", a)
	}
	if p, _ := json.Marshal(a.Pending[0]); string(p) != string(find(ann, contract.OnToolCallRequest).Params) {
		t.Errorf("pending %s, want what was sent", p)
	}

	if _, err := r.Confirm(natstest.Context(t), r.ann, contract.Answer{
		Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true, Source: "web",
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*feed{ann, bob, late} {
		f.await(contract.OnReadyForInput, 1)
	}
	if c := last[contract.ConfirmationResolved](bob, contract.OnConfirmationResolved); c.By != r.ann.Writer ||
		c.Outcome != event.Approved {
		t.Errorf("resolved %+v", c)
	}
	end := last[contract.TurnEnd](bob, contract.OnTurnEnd)
	if end.Recorded == nil || end.Recorded.Sequence != in.Sequence || end.Turn != in.Turn ||
		len(end.Recorded.Actions) != 1 || !end.Recorded.Actions[0].Success {
		t.Errorf("ended with %+v, want the record of %+v", end, in)
	}
	if i := last[contract.Input](bob, contract.OnInput); i.Sequence != in.Sequence || i.InputID != in.ID ||
		i.Writer != r.ann.Writer || i.Source != "test" {
		t.Errorf("input %+v", i)
	}
	if s := string(find(ann, contract.OnPlanCompleted).Params); !strings.Contains(s, `\u003cstrong\u003ewrite`) {
		t.Errorf("the text beside the call is not rendered: %s", s)
	}
	if s := string(find(ann, contract.OnNewMessage).Params); !strings.Contains(s, `"html":"`) {
		t.Errorf("the answer is not rendered: %s", s)
	}
	if s := string(find(bob, contract.OnNewMessage).Params); strings.Contains(s, `"html"`) ||
		bob.count(contract.OnCommit) > 0 {
		t.Errorf("HTML or commits for somebody who wants none: %s", s)
	}
	checkCommits(t, ann)
}

func find(f *feed, method string) contract.Notification {
	for _, n := range f.all() {
		if n.Method == method {
			return n
		}
	}
	return contract.Notification{}
}

// checkCommits verifies that each commit is sent right before its events.
func checkCommits(t *testing.T, f *feed) {
	t.Helper()
	var commit string
	commits := 0
	for _, n := range f.placed() {
		of, index, _ := strings.Cut(n.ID, ".")
		switch {
		case index == "h" && n.Method == contract.OnCommit:
			commit = of
			commits++
		case of != commit:
			t.Errorf("%s %s arrived without its commit", n.ID, n.Method)
		}
	}
	if commits < 4 {
		t.Errorf("got %d commits of a turn with two rounds and an approval", commits)
	}
}

// Deltas come with their blocks, and joined they are the beginning of the text; none comes
// after the text itself. The text may come first, if the machine is busy: then there is
// another turn.
func TestDeltas(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("deltas")
	plain, html := r.attach(contract.Attachment{Ref: ref}), r.attach(contract.Attachment{Ref: ref, HTML: true})
	seen, ctx := map[*feed]bool{}, natstest.Context(t)
	for turns := 1; len(seen) < 2; turns++ {
		if ctx.Err() != nil {
			t.Fatalf("in %d turns, pieces were sent to %d of 2 feeds", turns-1, len(seen))
		}
		turn := r.say(ref, "stream 20 words every 2 ms").Turn
		for _, f := range []*feed{plain, html} {
			f.await(contract.OnReadyForInput, turns)
			if text, blocks := streamed(t, f, turn); text != "" {
				seen[f] = true
				if f == html && !strings.Contains(blocks[0], strings.TrimSpace(text)) {
					t.Errorf("the blocks are %v, want %q in them", blocks, text)
				}
				if f == plain && len(blocks) > 0 {
					t.Errorf("blocks for somebody who wants none: %v", blocks)
				}
			}
		}
	}
}

// streamed returns what a feed was sent of a turn's text before the complete text, and the
// blocks of that.
func streamed(t *testing.T, f *feed, turn string) (text string, blocks map[int]string) {
	t.Helper()
	blocks, over := map[int]string{}, false
	for _, n := range f.all() {
		switch n.Method {
		case contract.OnPlanCompleted:
			var p contract.PlanCompleted
			if err := json.Unmarshal(n.Params, &p); err != nil {
				t.Fatal(err)
			}
			if over = over || p.Turn == turn; p.Turn == turn && !strings.HasPrefix(p.Text, text) {
				t.Errorf("streamed %q, want the beginning of %q", text, p.Text)
			}
		case contract.OnDelta:
			var d contract.Delta
			if err := json.Unmarshal(n.Params, &d); err != nil || d.Turn == "" || d.Plan == "" {
				t.Fatalf("%s: %v", n.Params, err)
			}
			if d.Turn != turn {
				continue
			}
			if over {
				t.Errorf("%s comes after what replaces it", n.Params)
			}
			text += d.Text
			for _, b := range d.Blocks {
				blocks[b.Index] = b.HTML
			}
		}
	}
	if !over {
		t.Errorf("turn %s has no text", turn)
	}
	return text, blocks
}

package backend_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// twoTurns has a session with two turns, of which one needs approval and one streams, and
// returns a feed that was open from the beginning.
func (r *rig) twoTurns(ref subject.Ref) *feed {
	r.t.Helper()
	f := r.attach(contract.Attachment{Ref: ref, After: "0", Commits: true})
	r.say(ref, `call file_system:write_file {"path":"a.txt","content":"x"}`)
	f.await(contract.OnToolCallRequest, 1)
	q := last[contract.ToolCallRequest](f, contract.OnToolCallRequest)
	if _, err := r.Confirm(natstest.Context(r.t), r.ann,
		contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true}); err != nil {
		r.t.Fatal(err)
	}
	f.await(contract.OnReadyForInput, 1)
	r.say(ref, "stream 5 words")
	f.await(contract.OnReadyForInput, 2)
	return f
}

// A client that continues after any id gets exactly what follows it: earlier notifications,
// from memory or from the log, and new ones.
func TestGoOnAfterEveryID(t *testing.T) {
	ref := session("cuts")
	r := start(t, hub.Config{Ring: 8}) // most of it has left memory
	whole := r.twoTurns(ref)
	bridges := map[string]*rig{
		"the one that was there":         r,
		"one that has all in memory":     newRig(t, r.sys, hub.Config{}),
		"one that comes after a restart": newRig(t, r.sys, hub.Config{Ring: 1, Queue: 8, Stall: time.Minute}),
	}
	// The second one sees everything: it follows from before the third turn.
	ids := []string{"0"}
	for _, n := range whole.placed() {
		ids = append(ids, n.ID)
	}
	type cut struct {
		about   string
		after   int // index in ids
		commits bool
		*feed
	}
	var cuts []cut
	for name, b := range bridges {
		for i, id := range ids {
			for _, commits := range []bool{true, false} {
				about := fmt.Sprintf("%s, after %s, commits %t", name, id, commits)
				f := b.attach(contract.Attachment{Ref: ref, After: id, Commits: commits, HTML: i%2 == 0 && !commits, Name: about})
				cuts = append(cuts, cut{about, i, commits, f})
			}
		}
	}
	r.say(ref, "call math:evaluate {\"expression\":\"1+1\"}")
	whole.await(contract.OnReadyForInput, 3)
	want := whole.placed()
	if len(ids) < 20 || len(want) < len(ids)+10 {
		t.Fatalf("the session has only %d and then %d notifications", len(ids), len(want))
	}
	for _, c := range cuts {
		rest := want[c.after:]
		if !c.commits {
			rest = withoutCommits(rest)
		}
		natstest.Eventually(t, c.about+" gets as many", func() bool {
			if err := c.ended(); err != nil {
				t.Fatalf("%s has ended: %v", c.about, err)
			}
			return len(c.placed()) >= len(rest)
		})
		if i := c.all()[0]; i.Method != contract.OnAttached {
			t.Errorf("%s: the first is %s", c.about, i.Method)
		}
		if a := last[contract.Attached](c.feed, contract.OnAttached); a.After != ids[c.after] {
			t.Errorf("%s: attached after %q", c.about, a.After)
		}
		sameIDs(t, c.about, c.placed(), rest)
	}
}

func withoutCommits(all []contract.Notification) (out []contract.Notification) {
	for _, n := range all {
		if n.Method != contract.OnCommit {
			out = append(out, n)
		}
	}
	return out
}

// sameIDs compares ids and methods alone, because some came with HTML.
func sameIDs(t testing.TB, about string, got, want []contract.Notification) {
	t.Helper()
	bare := func(all []contract.Notification) (out []contract.Notification) {
		for _, n := range all {
			out = append(out, contract.Notification{ID: n.ID, Method: n.Method})
		}
		return out
	}
	sameNotifications(t, about, bare(got), bare(want))
}

// A feed of new notifications also has an id to continue after.
func TestGoOnAfterNow(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("now")
	whole := r.twoTurns(ref)
	now := r.attach(contract.Attachment{Ref: ref})
	now.await(contract.OnAttached, 1)
	after := last[contract.Attached](now, contract.OnAttached).After
	all := whole.placed()
	if want := all[len(all)-1].ID; after != want {
		t.Errorf("attached after %q, want the last id, %q", after, want)
	}
	if got := newRig(t, r.sys, hub.Config{}).attach(contract.Attachment{Ref: ref}); true {
		got.await(contract.OnAttached, 1)
		if a := last[contract.Attached](got, contract.OnAttached).After; a != after {
			t.Errorf("another bridge begins after %q, want %q", a, after)
		}
	}
	again := r.attach(contract.Attachment{Ref: ref, After: after})
	r.say(ref, "hello")
	for _, f := range []*feed{now, again} {
		f.await(contract.OnReadyForInput, 1)
	}
	sameNotifications(t, "after the id of onAttached", again.placed(), now.placed())
}

// An id that was never sent is refused, and the error names the field.
func TestUnknownPlaces(t *testing.T) {
	r := start(t, hub.Config{})
	ref, other := session("here"), session("there")
	in := r.say(ref, "hello")
	f := r.attach(contract.Attachment{Ref: ref, After: "0"})
	f.await(contract.OnReadyForInput, 1)
	g := r.attach(contract.Attachment{Ref: other, After: "0"})
	r.say(other, "hello")
	g.await(contract.OnReadyForInput, 1)
	all, foreign := f.placed(), g.placed()
	for about, after := range map[string]string{
		"garbage":               "x",
		"an index too many":     all[len(all)-1].ID + "0",
		"the future":            "999999.0",
		"a cause":               fmt.Sprintf("%d.0", in.Sequence),
		"another session's":     foreign[0].ID,
		"before there was any":  "0.0",
		"an index that is none": "1.-1",
	} {
		_, err := r.Attach(natstest.Context(t), r.ann, contract.Attachment{Ref: ref, After: after})
		if code, field := refused(err); code != contract.CodeInvalid || field != "after" {
			t.Errorf("%s, after %q: got %v, want an error about after", about, after, err)
		}
	}
}

// When the bus restarts in the middle of a session, nothing is lost or sent twice.
func TestTheBusRestarts(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("restart")
	var feeds []*feed
	for i := range 6 {
		feeds = append(feeds, r.attach(contract.Attachment{Ref: ref, Commits: i%2 == 0, HTML: i%3 == 0}))
	}
	r.say(ref, "hello")
	for _, f := range feeds {
		f.await(contract.OnReadyForInput, 1)
	}
	for i := range 2 {
		r.say(ref, "stream 40 words every 5 ms")
		feeds[0].await(contract.OnAgentStateChange, 1)
		if err := r.sys.RestartBus(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for _, f := range feeds {
			f.await(contract.OnTurnEnd, 2+i)
		}
	}
	r.say(ref, "the end")
	for _, f := range feeds {
		f.await(contract.OnTurnEnd, 4)
		f.await(contract.OnReadyForInput, 4)
	}
	// A bridge that was not there reads the log.
	want := newRig(t, r.sys, hub.Config{}).attach(contract.Attachment{Ref: ref, After: "0", Commits: true})
	want.await(contract.OnReadyForInput, 4)
	for i, f := range feeds {
		w := want.placed()
		if i%2 != 0 {
			w = withoutCommits(w)
		}
		natstest.Eventually(t, "everything has arrived", func() bool { return len(f.placed()) >= len(w) })
		sameIDs(t, fmt.Sprintf("feed %d", i), f.placed(), w)
	}
}

// following counts this process's goroutines that follow sessions or serve feeds; the
// system beside the bridge has its own, which change.
func following() (n int) {
	all := make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "skandha.dev/services/uibridge/hub.") ||
			strings.Contains(stack, "skandha.dev/services/internal/follow.") {
			n++
		}
	}
	return n
}

// A session without feeds is released, and a bridge that ends leaves nothing behind.
func TestNothingIsLeft(t *testing.T) {
	r := start(t, hub.Config{Idle: 20 * time.Millisecond})
	r.open(contract.Attachment{Ref: session("warm")}).Close() // what is made once is there
	natstest.Eventually(t, "the session is let go", func() bool { return r.Stats() == hub.Stats{} })
	before := following()
	ctx, cancel := context.WithCancel(natstest.Context(t))
	for i := range 10 {
		ref := session(fmt.Sprintf("leak%d", i))
		for j := range 4 {
			f, err := r.Attach(ctx, r.ann,
				contract.Attachment{Ref: ref, HTML: j%2 == 0, Commits: j > 1, After: []string{"", "0"}[j%2]})
			if err != nil {
				t.Fatal(err)
			}
			if j == 3 {
				f.Close() // the others end with the context
				f.Close()
				if _, err := f.Next(ctx); err == nil {
					t.Error("a closed feed goes on")
				}
			}
		}
		r.say(ref, "stream 5 words")
	}
	if s := r.Stats(); s.Sessions != 10 || s.Feeds != 30 {
		t.Errorf("got %+v", s)
	}
	if n := following(); n <= before { // else what follows could not fail
		t.Errorf("%d goroutines follow, %d before", n, before)
	}
	cancel()
	natstest.Eventually(t, "all sessions are let go", func() bool { return r.Stats() == hub.Stats{} })
	natstest.Eventually(t, "no goroutine is left", func() bool { return following() <= before })
	r.Close()
	if _, err := r.Attach(natstest.Context(t), r.ann,
		contract.Attachment{Ref: session("late")}); contract.ErrorOf(err).Code != contract.CodeUnavailable {
		t.Errorf("a bridge that has ended says %v", err)
	}
}

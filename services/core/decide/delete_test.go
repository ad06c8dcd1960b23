package decide_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// order gives a command, which must end like that.
func (w *world) order(name, end string) {
	w.t.Helper()
	c := w.cause(subject.Command, "web", `{"name":"`+name+`"}`)
	w.process(c, nil)
	w.ends(c.Sequence, end)
}

func TestADeletedSessionTakesNothing(t *testing.T) {
	w := newWorld(t)
	open, queued := w.say("open"), w.say("queued")
	w.order("delete", "recorded")
	w.ends(open.Sequence, "reset")
	w.ends(queued.Sequence, "reset")
	if w.state.Turn != nil || len(w.state.Queue) > 0 || w.state.Driver != 0 || w.state.Deleted == nil || w.state.UI != event.StateLocked {
		t.Fatalf("%+v", w.state)
	}
	in := w.say("hello?")
	w.ends(in.Sequence, "session_locked")
	for _, name := range []string{"help", "reset", "repair", "delete"} {
		w.order(name, "session_locked")
	}
	if d := decide.OnRetention(w.state, w.env()); d != nil {
		t.Error("its content is removed while it can be undeleted")
	}
	w.order("undelete", "recorded")
	w.order("undelete", "recorded") // it was not deleted
	again := w.say("hello again")
	w.final("hello")
	w.ends(again.Sequence, "recorded")
	if w.state.Deleted != nil || w.state.Locked != "" || !strings.Contains(string(w.state.Window[0].Msg), "open") {
		t.Errorf("%+v", w.state)
	}
}

func TestWhatIsLeftOfADeletedSession(t *testing.T) {
	w := newWorld(t)
	in := w.cause(subject.Input, "web", `{"text":"a secret","id":"in-1"}`)
	w.process(in, nil)
	w.final("another secret")
	w.order("delete", "recorded")
	w.now = w.now.Add(time.Hour + time.Second)
	d := decide.OnRetention(w.state, w.env())
	if d == nil || !decide.IsTombstone(d.Commit) {
		t.Fatal("its content stays")
	}
	w.commit(d, 0)
	if body := string(w.log[len(w.log)-1].body); strings.Contains(body, "secret") {
		t.Errorf("the content is still there: %s", body)
	}
	alone, err := decide.At(ref, w.state.Prev).Apply(w.last(), w.state.Rev)
	if err != nil {
		t.Fatal(err)
	}
	w.same(w.state, alone, "decided", "folded alone")
	if d := decide.OnRetention(w.state, w.env()); d != nil {
		t.Error("there is a second tombstone")
	}
	w.order("undelete", "session_locked")
	w.process(w.cause(subject.Input, "web", `{"text":"again","id":"in-1"}`), nil)
	w.ends(w.seq-1, "duplicate_of")
	w.ends(w.say("new").Sequence, "session_locked")
}

func TestACheckpointOfRetentionChangesNothing(t *testing.T) {
	w := newWorld(t)
	if decide.OnRetention(w.state, w.env()) != nil {
		t.Error("an empty session has a checkpoint")
	}
	for _, text := range []string{"one", "two"} {
		w.say(text)
		if decide.OnRetention(w.state, w.env()) != nil {
			t.Error("a session at work has a checkpoint")
		}
		w.final("answer to " + text)
	}
	before := w.state
	d := decide.OnRetention(w.state, w.env())
	w.commit(d, 0)
	after := w.state
	if after.Commits != before.Commits+1 || after.Cursor != before.Cursor || after.Turns != 2 || len(after.Window) != len(before.Window) ||
		after.Chain != before.Chain || len(after.Seen) != len(before.Seen) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	alone, err := decide.At(ref, before.Rev).Apply(w.last(), after.Rev)
	if err != nil {
		t.Fatal(err)
	}
	w.same(after, alone, "decided", "folded alone")
	three := w.say("three")
	w.final("answer to three")
	w.ends(three.Sequence, "recorded")
}

package decide_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// Snapshots and statistics read a state while the session continues from it: they may
// read it at any time, and it never changes.
func TestStatesCanBeReadWhileTheSessionGoesOn(t *testing.T) {
	w := newWorld(t)
	var readers sync.WaitGroup
	read := func(s *decide.State) {
		want, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			for range 8 {
				if got, err := s.Snapshot(); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the state at %d changed: %v", s.Rev, err)
					return
				}
			}
		})
	}
	for i := range 40 {
		w.process(w.cause(subject.Input, "web", fmt.Sprintf(`{"text":"%d","id":"%d"}`, i, i)), nil)
		read(w.state)
		w.calls("read", `{}`)
		w.succeed("c0", `1`)
		read(w.state)
		w.final("ok")
	}
	readers.Wait()
}

// Two successors of the same state do not affect each other.
func TestTwoDecisionsFromOneState(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.process(w.cause(subject.Input, "web", fmt.Sprintf(`{"text":"%d","id":"%d"}`, i, i)), nil)
		w.final("ok")
	}
	from := w.state
	fork := func(text string) *decide.State {
		env := w.env()
		env.Nonce = func() string { return "n-" + text }
		c := decide.ReadCause(w.seq+1, inputOf("web"), w.now, mustJSON(event.Input{Text: text, ID: text}))
		d, reason := decide.OnCause(from, c.Sequence, c, nil, env)
		if d == nil {
			t.Fatal(reason)
		}
		return d.Stored(c.Sequence + 1)
	}
	var forks sync.WaitGroup
	states := make([]*decide.State, 8)
	for i := range states {
		forks.Go(func() { states[i] = fork(fmt.Sprint("fork ", i)) })
	}
	forks.Wait()
	for i, s := range states {
		last := s.Window[len(s.Window)-1]
		if want := fmt.Sprintf(`{"role":"user","text":"fork %d"}`, i); string(last.Msg) != want {
			t.Errorf("fork %d says %s", i, last.Msg)
		}
		if key := s.Seen[len(s.Seen)-1].Key; key != fmt.Sprintf("web/fork %d", i) {
			t.Errorf("fork %d has seen %s", i, key)
		}
	}
	if len(from.Window) != 20 || len(from.Seen) != 10 {
		t.Error("the state before has changed")
	}
}

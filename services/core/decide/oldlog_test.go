package decide_test

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"testing"
	"time"

	"skandha.dev/pkg/event"
)

// fold3 is the log of a session, written by a core of fold version 3: turns, calls, an
// approval, a queued input, and finally a lock by a breaker that counted every failure.
// Each line is one commit.
//
//go:embed testdata/fold3.jsonl
var fold3 []byte

// Commits of an older core still fold, and a session that its breaker locked can be
// unlocked.
func TestALogOfFoldVersion3Folds(t *testing.T) {
	w := newWorld(t)
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(fold3)); lines.Scan(); n++ {
		var m struct {
			Seq    uint64          `json:"seq"`
			Commit json.RawMessage `json:"commit"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		c, err := event.DecodeCommit(ref, m.Commit)
		if err != nil {
			t.Fatal(err)
		}
		if w.state, err = w.state.Apply(c, m.Seq); err != nil {
			t.Fatalf("commit %d: %v", m.Seq, err)
		}
		w.seq = m.Seq
		if c.Header.FoldVersion != 3 {
			t.Fatalf("it is of fold version %d", c.Header.FoldVersion)
		}
	}
	if n < 30 || w.state.Locked == "" || w.state.Turn != nil {
		t.Fatalf("after %d commits: %s", n, mustJSON(w.state))
	}
	w.replica, w.seen.rev, w.seen.cursor, w.seen.now = w.state, w.state.Rev, w.state.Cursor, w.state.Now
	w.now = w.state.Now
	w.ends(w.say("still there?").Sequence, "session_locked")
	w.now = w.now.Add(30 * time.Second)
	in := w.say("and now?")
	w.calls("write", `{"text":"x"}`)
	w.succeed("c0", `1`)
	w.final("yes")
	w.ends(in.Sequence, "recorded")
}

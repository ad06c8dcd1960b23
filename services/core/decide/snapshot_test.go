package decide_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// eventful returns a session with turns, calls and requests in progress.
func eventful(t testing.TB) *world {
	w := newWorld(t)
	for i := range 3 {
		w.process(w.cause(subject.Input, "web", fmt.Sprintf(`{"text":"question %d","id":"i%d"}`, i, i)), nil)
		w.calls("write", fmt.Sprintf(`{"text":"%d"}`, i))
		w.succeed("c0", `{"written":true}`)
		w.final("an answer")
	}
	w.process(w.cause(subject.Input, "web", `{"text":"and now?","id":"i9"}`), nil)
	w.say("waiting")
	w.calls("mail:send", `{"to":"you"}`, "read", `{}`, "read", `{"path":"p"}`)
	w.succeed("c1", `{"text":"result"}`)
	return w
}

func (w *world) snapshot() (data []byte, at event.Commit, rev uint64) {
	w.t.Helper()
	data, err := w.state.Snapshot()
	if err != nil {
		w.fail("%v", err)
	}
	return data, w.last(), w.state.Rev
}

func TestASnapshotIsTheState(t *testing.T) {
	w := eventful(t)
	w.reload() // compares bit for bit
	w.confirm("c0", true)
	w.reload()
}

func TestASnapshotIsRefusedOnAnyDifference(t *testing.T) {
	w := eventful(t)
	data, at, rev := w.snapshot()
	before, earlier := w.commits()[len(w.log)-2], w.log[len(w.log)-2].seq
	replaced := func(old, by string) []byte {
		if !bytes.Contains(data, []byte(old)) {
			t.Fatalf("the snapshot holds no %s:\n%s", old, data)
		}
		return bytes.Replace(data, []byte(old), []byte(by), 1)
	}
	digest := at
	digest.Header.Digest = strings.Repeat("0", 32)
	version := at
	version.Header.FoldVersion++
	for _, c := range []struct {
		name string
		data []byte
		ref  subject.Ref
		at   event.Commit
		rev  uint64
	}{
		{"another revision", data, ref, at, rev + 1},
		{"an earlier commit", data, ref, before, earlier},
		{"an earlier commit at its revision", data, ref, before, rev},
		{"another session", data, subject.Ref{Agent: "a", Session: "other"}, at, rev},
		{"another digest", data, ref, digest, rev},
		{"another fold version", data, ref, version, rev},
		{"nothing", nil, ref, at, rev},
		{"cut short", data[:len(data)/2], ref, at, rev},
		{"null", []byte("null"), ref, at, rev},
		{"another answer in the window", replaced("an answer", "my answer"), ref, at, rev},
		{"another turn in the window", replaced(`{"turn":"t1","msg"`, `{"turn":"t2","msg"`), ref, at, rev},
		{"another input seen", replaced(`"key":"web/i1"`, `"key":"web/i2"`), ref, at, rev},
		{"an input seen elsewhere", replaced(`"key":"web/i0","seq":1`, `"key":"web/i0","seq":2`), ref, at, rev},
		{"another confirmation's hash", replaced(w.step("c0").Hash, strings.Repeat("0", 32)), ref, at, rev},
		{"asked at another time", replaced(fmt.Sprintf(`"asked":%d`, w.step("c0").Asked), `"asked":1`), ref, at, rev},
		{
			"something asked that was not", replaced(`"call_id":"c2",`, fmt.Sprintf(`"call_id":"c2","asked":%d,`, rev)), ref, at,
			rev,
		},
		{"begun at another time", replaced(fmt.Sprintf(`"began":%d`, w.state.Turn.Began), `"began":1`), ref, at, rev},
		{"another digest of the snapshot", replaced(at.Header.Digest, strings.Repeat("0", 32)), ref, at, rev},
		{"a space more", replaced(`{"ref"`, `{ "ref"`), ref, at, rev},
		{"a field more", replaced(`{"ref"`, `{"x":1,"ref"`), ref, at, rev},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := decide.FromSnapshot(c.data, c.ref, c.at, c.rev); err == nil {
				t.Fatal("it was taken")
			}
		})
	}
}

// No byte of a snapshot can change unnoticed.
func TestEveryByteOfASnapshotIsCovered(t *testing.T) {
	w := eventful(t)
	data, at, rev := w.snapshot()
	r := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		broken := bytes.Clone(data)
		for broken[i] == data[i] {
			broken[i] = oneOf(r, byte('0'+r.IntN(10)), byte('a'+r.IntN(6)), byte(' '+r.IntN(95)))
		}
		if _, err := decide.FromSnapshot(broken, ref, at, rev); err == nil {
			t.Fatalf("byte %d: %q became %q unnoticed, after %s", i, data[i], broken[i], data[max(0, i-60):i])
		}
	}
}

func TestACommitThatDoesNotFitIsRefused(t *testing.T) {
	w := eventful(t)
	at := w.last()
	s := decide.New(ref)
	for _, m := range w.log[:len(w.log)-1] {
		c, err := event.DecodeCommit(ref, m.body)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.Apply(c, m.seq); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := s.Snapshot()
	for name, change := range map[string]func(*event.Commit){
		"it does not follow":      func(c *event.Commit) { c.Header.Prev++ },
		"it is another session's": func(c *event.Commit) { c.Ref.Session = "other" },
		"another digest":          func(c *event.Commit) { c.Header.Digest = "00" },
		"another cursor":          func(c *event.Commit) { c.Header.Cursor++ },
		"another driver":          func(c *event.Commit) { c.Header.Driver++ },
		"another time":            func(c *event.Commit) { c.Header.Now = c.Header.Now.Add(1) },
		"an event is missing":     func(c *event.Commit) { c.Events = c.Events[1:] },
		"an event is there twice": func(c *event.Commit) { c.Events = append(c.Events[:1:1], c.Events...) },
		"an event of another kind": func(c *event.Commit) {
			c.Events = append(c.Events[:1:1], event.Event{Type: "skandha.new.v1", Data: json.RawMessage(`{}`)})
		},
		"an event without its data": func(c *event.Commit) {
			c.Events = []event.Event{{Type: event.TypeActCompleted, Data: json.RawMessage(`[`)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := at
			change(&c)
			if _, err := s.Apply(c, w.state.Rev); !errors.Is(err, decide.ErrMismatch) {
				t.Fatalf("%v", err)
			}
			if after, _ := s.Snapshot(); !bytes.Equal(before, after) {
				t.Fatal("the state was changed")
			}
		})
	}
}

// Rule 15: a session whose log contradicts itself ends its open inputs, and continues
// locked.
func TestAMismatchEndsWhatIsOpen(t *testing.T) {
	w := eventful(t)
	open := []uint64{w.state.Turn.Sequence, w.state.Queue[0].Sequence}
	writers := map[uint64]subject.Writer{open[0]: "web", open[1]: "clock"}
	d := decide.OnMismatch(decide.Wreck{
		Ref: ref, Last: w.state.Rev, Cursor: w.state.Cursor, Open: open, Writers: writers, Why: "digest",
	}, w.env())
	for i, e := range d.Commit.Events {
		if want := writers[inputOfEvent(e)]; d.Writers[i] != want {
			t.Errorf("%s is said to be about an input of %q, want %q", e.Type, d.Writers[i], want)
		}
	}
	if !decide.IsCheckpoint(d.Commit) || decide.IsCheckpoint(w.last()) {
		t.Fatal("a checkpoint is not known as one")
	}
	body, err := d.Commit.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := event.DecodeCommit(ref, body)
	if err != nil {
		t.Fatal(err)
	}
	w.seq++
	alone, err := decide.At(ref, w.state.Rev).Apply(c, w.seq) // without the commits before
	if err != nil {
		t.Fatal(err)
	}
	behind, err := w.state.Apply(c, w.seq) // behind them, if they can be folded after all
	if err != nil {
		t.Fatal(err)
	}
	decided := d.Stored(w.seq)
	w.same(decided, alone, "decided", "folded alone")
	w.same(decided, behind, "decided", "folded behind the log")
	for _, seq := range open {
		if !bytes.Contains(body, []byte(fmt.Sprintf(`{"sequence":%d,"code":"state_mismatch"`, seq))) {
			t.Fatalf("input %d does not end: %s", seq, body)
		}
	}
	if alone.Locked == "" || alone.Turn != nil || alone.Driver != 0 || alone.Cursor != w.state.Cursor {
		t.Fatalf("%+v", alone)
	}
}

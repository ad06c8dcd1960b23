package decide_test

import (
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// For any body of a cause: no panic, a decision or a reason, exactly one terminal event
// where one is needed, and a commit that can be folded.
func FuzzOnCauseBody(f *testing.F) {
	kinds := append(subject.CauseKinds(), "gossip")
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `7`, `"x"`, `{"text":"hi"}`, `{"text":"hi","id":"i1","mode":"interrupt","source":"s"}`,
		`{"text":"\ud800"}`,
		`{"sequence":1}`, `{"sequence":-1}`, `{"input_id":"i0","reason":"enough"}`, `{"name":"/reset","id":"k"}`,
		`{"name":"cancel"}`, `{"name":"metrics","args":[]}`,
		`{"confirmation_id":"t6-p1-c0","hash":"00","approved":true}`, `{"id":"t6-p1-c0"}`,
		`{"specversion":"1.0","id":"e1","source":"s","type":"skandha.sense.input.v1","data":{"text":"hi"}}`,
		`{"specversion":"1.0","id":"e1","source":"s","type":"skandha.sense.input.v2","data":null,"agent":"../x"}`,
		`{"SPECVERSION":"1.0","Text":"case"}`, "{\"text\":\"\xff\xfe\"}", "\xef\xbb\xbf{}", `{"text":"a","text":"b"}`,
		`{"text":{"text":"x"}}`,
	} {
		for k := range kinds {
			f.Add(uint8(k), body, uint8(len(body)))
		}
	}
	base := eventful(f)
	f.Fuzz(func(t *testing.T, kind uint8, body string, at uint8) {
		s := decide.New(ref)
		for _, m := range base.log[:int(at)%(len(base.log)+1)] { // any moment of a session
			c, err := event.DecodeCommit(ref, m.body)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = s.Apply(c, m.seq); err != nil {
				t.Fatal(err)
			}
		}
		w := newWorld(t)
		w.state, w.replica, w.seq, w.now = s, s, base.seq, base.now
		c := w.cause(kinds[int(kind)%len(kinds)], oneOfWriters(at), body)
		must := decide.MustClose(s, c)
		d, reason := decide.OnCause(s, c.Sequence, c, nil, w.env())
		if (d == nil) == (reason == "") {
			t.Fatalf("decision %v, reason %q", d != nil, reason)
		}
		terminals := 0
		if d != nil {
			terminals = fold(t, s, d, c.Sequence)
		}
		switch c.Kind {
		case subject.Cancel, subject.Confirmation, subject.Timer:
			if terminals != 0 {
				t.Fatalf("a %s has %d terminal events", c.Kind, terminals)
			}
		case subject.Input:
			if d == nil || terminals == 0 && !open(d.State(), c.Sequence) || terminals > 1 {
				t.Fatalf("an input has %d terminal events", terminals)
			}
		default:
			if terminals != 1 {
				t.Fatalf("a %s has %d terminal events", c.Kind, terminals)
			}
		}
		if len(must) > 0 && d == nil {
			t.Fatal("calls were closed for a cause without effect")
		}
	})
}

func oneOfWriters(n uint8) subject.Writer {
	return []subject.Writer{"web", "cli", subject.TimerWriter}[n%3]
}

// fold stores the decision and counts the terminal events of the cause at seq.
func fold(t *testing.T, s *decide.State, d *decide.Decision, seq uint64) (terminals int) {
	t.Helper()
	body, err := d.Commit.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := event.DecodeCommit(ref, body)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if _, err := s.Apply(c, seq+1); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, e := range c.Events {
		var r event.Recorded
		var f event.TurnFailed
		if e.DataAs(&r) == nil && r.Sequence == seq || e.DataAs(&f) == nil && f.Sequence == seq {
			terminals++
		}
	}
	return terminals
}

func open(s *decide.State, seq uint64) bool {
	if s.Turn != nil && s.Turn.Sequence == seq {
		return true
	}
	for _, p := range s.Queue {
		if p.Sequence == seq {
			return true
		}
	}
	return false
}

package event_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

func aCommit() event.Commit {
	now := time.Date(2026, 11, 21, 8, 30, 0, 123e6, time.UTC)
	e := event.New(ref, "c1.1", event.Source,
		event.Perceived{Sequence: 4, Writer: "web", Text: "hi", Disposition: event.Started})
	e.Turn, e.Cause, e.Time = "t4", "4", now
	return event.Commit{
		Ref: ref,
		Header: event.Header{
			CommitID: "c1", Prev: 3,
			Trigger: event.Trigger{Kind: event.ByCause, Sequence: 4, Cause: subject.Input, Writer: "web"},
			Cursor:  4, Driver: 4, Delivery: 1, Now: now, FoldVersion: 1, Digest: "00",
			Hooks: []hook.Verdict{{Point: hook.BeforeSense, Plugin: "audit", Verb: hook.Continue}},
		},
		Events: []event.Event{e, event.New(ref, "c1.2", event.Source, event.UIReady{})},
	}
}

func TestACommitSurvivesTheLog(t *testing.T) {
	c := aCommit()
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := event.DecodeCommit(ref, b)
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%v\n got %+v\nwant %+v\nin %s", err, got, c, b)
	}
}

func TestACommitWithoutEventsIsACommit(t *testing.T) {
	c := aCommit()
	c.Events = nil
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := event.DecodeCommit(ref, b); err != nil || len(got.Events) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeCommitRefusesAnythingElse(t *testing.T) {
	b, err := aCommit().Encode()
	if err != nil {
		t.Fatal(err)
	}
	sound := string(b)
	for name, body := range map[string]string{
		"no batch":                    `{}`,
		"empty batch":                 `[]`,
		"cut":                         sound[:len(sound)-1],
		"header of another type":      strings.Replace(sound, "skandha.commit.v1", "skandha.ui.ready.v1", 1),
		"header without data":         strings.Replace(sound, `"commit_id"`, `"x":[],"prev":"no","commit_id"`, 1),
		"an event of another session": strings.Replace(sound, `"s1","turn"`, `"s2","turn"`, 1),
		"an event of another agent": strings.Replace(sound, `"demo","session":"s1","turn"`,
			`"other","session":"s1","turn"`, 1),
		"an event of no session":        strings.Replace(sound, `"session":"s1","turn"`, `"turn"`, 1),
		"an event of another version":   strings.Replace(sound, `,{"specversion":"1.0"`, `,{"specversion":"2.0"`, 1),
		"an event without id":           strings.Replace(sound, `"id":"c1.1"`, `"id":""`, 1),
		"the header of another session": strings.Replace(sound, `"session":"s1","data"`, `"session":"s2","data"`, 1),
		"a header with another id":      strings.Replace(sound, `"id":"c1"`, `"id":"c2"`, 1),
		"a header without commit id":    strings.Replace(sound, `"commit_id":"c1"`, `"commit_id":""`, 1),
		"a time that cannot be written": strings.Replace(sound, `"now":"2026`, `"now":"9999-12-31T23:59:59-01:00","x":"2026`,
			1),
		"a null between the events":      strings.Replace(sound, `},{"spec`, `},null,{"spec`, 1),
		"an event that is not an object": strings.Replace(sound, `},{"spec`, `},7,{"spec`, 1),
	} {
		if body == sound {
			t.Fatalf("%s: nothing was changed", name)
		}
		if c, err := event.DecodeCommit(ref, []byte(body)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed: %+v", name, err, c)
		}
	}
	if _, err := event.DecodeCommit(subject.Ref{Agent: "demo", Session: "s2"}, b); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("on the subject of another session: %v", err)
	}
}

// What decodes as a commit can be written and read again, and is the same.
func FuzzDecodeCommit(f *testing.F) {
	b, err := aCommit().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`[{"specversion":"1.0","id":"c","source":"x","type":"skandha.commit.v1","agent":"demo","session":"s1","data":{}}]`))
	f.Add([]byte(strings.Replace(string(b), `"prev":3`, `"prev":18446744073709551615`, 1)))
	f.Add([]byte(strings.Replace(string(b), `"data":{}`, `"data": [ 1e400 , "\ud800" ] `, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := event.DecodeCommit(ref, b)
		if err != nil {
			if !errors.Is(err, event.ErrMalformed) {
				t.Fatalf("%v, want ErrMalformed", err)
			}
			return
		}
		if c.Ref != ref {
			t.Fatalf("the commit of %s is read as one of %s", ref, c.Ref)
		}
		b1, err := c.Encode()
		if err != nil {
			t.Fatalf("%s\ndoes not encode: %v", b, err)
		}
		again, err := event.DecodeCommit(ref, b1)
		if err != nil {
			t.Fatalf("%s\nis written as %s\nwhich does not decode: %v", b, b1, err)
		}
		b2, err := again.Encode()
		if err != nil || string(b1) != string(b2) {
			t.Fatalf("not stable: %v\n%s\n%s", err, b1, b2)
		}
		if again.Header.Digest != c.Header.Digest || !again.Header.Now.Equal(c.Header.Now) ||
			len(again.Events) != len(c.Events) {
			t.Fatalf("%+v\nbecomes %+v", c, again)
		}
	})
}

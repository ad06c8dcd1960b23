package event_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

var ref = subject.Ref{Agent: "demo", Session: "s1"}

func TestAppendJSONIsTheEnvelopeThatDecodeReads(t *testing.T) {
	e := event.New(ref, "c1.1", event.Source,
		event.UIMessage{Content: "é <b> \" \\ \n \x00 \u2028", Format: event.Markdown})
	for name, change := range map[string]func(*event.Event){
		"bare":          func(*event.Event) {},
		"turn and time": func(e *event.Event) { e.Turn, e.Cause, e.Time = "t4", "4", time.Unix(1795249800, 123456789).UTC() },
		"odd strings": func(e *event.Event) {
			e.ID, e.Source, e.Turn = "\"\\\n\x00\x7f<>&é\u2028", "urn:天気", "\u007f\x1f"
		},
		"another zone": func(e *event.Event) { e.Time = time.Unix(1795249800, 0).In(time.FixedZone("", 3600)) },
		"no session":   func(e *event.Event) { e.Agent, e.Session = "", "" },
	} {
		e := e
		change(&e)
		b := e.AppendJSON([]byte("before:"))
		got, err := event.Decode([]byte(strings.TrimPrefix(string(b), "before:")))
		if err != nil {
			t.Errorf("%s: %v in %s", name, err, b)
			continue
		}
		if !got.Time.Equal(e.Time) {
			t.Errorf("%s: time %v became %v", name, e.Time, got.Time)
		}
		got.Time, e.Time = time.Time{}, time.Time{}
		if encode(t, got) != encode(t, e) {
			t.Errorf("%s:\n got %s\nwant %s", name, encode(t, got), encode(t, e))
		}
	}
}

func TestAnEventWithoutDataIsWrittenWithNull(t *testing.T) {
	b := event.Event{SpecVersion: event.SpecVersion, ID: "1", Source: "x", Type: event.TypeUIReady}.AppendJSON(nil)
	if !json.Valid(b) || !strings.Contains(string(b), `"data":null`) {
		t.Errorf("got %s", b)
	}
}

func TestDecodeRefusesAnEnvelopeThatLacksSomething(t *testing.T) {
	const sound = `{"specversion":"1.0","id":"1","source":"x","type":"skandha.ui.ready.v1","agent":"demo","session":"s1","data":{}}`
	if _, err := event.Decode([]byte(sound)); err != nil {
		t.Fatalf("%s: %v", sound, err)
	}
	for name, change := range map[string][2]string{
		"specversion":         {`"1.0"`, `"0.3"`},
		"no specversion":      {`"specversion":"1.0",`, ``},
		"id":                  {`"id":"1"`, `"id":""`},
		"source":              {`"source":"x"`, `"source":""`},
		"type":                {`"type":"skandha.ui.ready.v1",`, ``},
		"data":                {`,"data":{}`, ``},
		"agent with dot":      {`"demo"`, `"a.b"`},
		"session wildcard":    {`"s1"`, `">"`},
		"id of another type":  {`"id":"1"`, `"id":1`},
		"time that is none":   {`"data"`, `"time":"now","data"`},
		"time before years":   {`"data"`, `"time":"0000-01-01T00:00:00+01:00","data"`},
		"time after years":    {`"data"`, `"time":"9999-12-31T23:59:59-01:00","data"`},
		"no object":           {sound, `[]`},
		"cut":                 {`}}`, `}`},
		"something behind it": {`}}`, `}}}`},
	} {
		body := strings.Replace(sound, change[0], change[1], 1)
		if _, err := event.Decode([]byte(body)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed: %s", name, err, body)
		}
	}
}

func TestDataAsTellsAnotherTypeFromABrokenBody(t *testing.T) {
	e := event.New(ref, "1", "x", event.UIState{State: event.StateThinking})
	var s event.UIState
	if err := e.DataAs(&s); err != nil || s.State != event.StateThinking {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := e.DataAs(&event.UIMessage{}); !errors.Is(err, event.ErrUnknownType) {
		t.Errorf("another type: %v", err)
	}
	e.Data = []byte(`[]`)
	if err := e.DataAs(&s); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("broken body: %v", err)
	}
}

func TestTypesAreDistinctAndNameTheirLiveSubject(t *testing.T) {
	seen := map[event.Type]bool{}
	for _, typ := range append(append(event.CauseTypes(), event.CommitTypes()...), event.TypeCommit, event.TypeDelta) {
		if seen[typ] {
			t.Errorf("%s is listed twice", typ)
		}
		seen[typ] = true
		if typ == event.TypeCommit {
			continue
		}
		if want := event.Type("skandha." + typ.Phase() + "." + typ.Name() + ".v1"); typ != want {
			t.Errorf("%s has phase %q and name %q", typ, typ.Phase(), typ.Name())
		}
	}
	for _, typ := range event.CommitTypes() {
		e := event.Event{Agent: ref.Agent, Session: ref.Session, Type: typ}
		r, phase, name, err := subject.ParseLive(e.Live())
		if err != nil || r != ref || phase != typ.Phase() || name != typ.Name() {
			t.Errorf("%s is live on %q: %v", typ, e.Live(), err)
		}
		if terminal := typ == event.TypeRecorded || typ == event.TypeTurnFailed; typ.Terminal() != terminal {
			t.Errorf("%s: terminal is %t", typ, typ.Terminal())
		}
	}
}

// A fuzzed envelope that decodes survives being written and read again.
func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"x","type":"skandha.ui.ready.v1","agent":"demo","session":"s1","turn":"t4","cause":"4","time":"2026-11-21T08:30:00.123+01:00","data":{}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"\u0000\ud800<","source":"\u2028","type":"t","data":"\ud83d\ude00"}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"x","type":"t","time":"9999-12-31T23:59:59.999999999Z","data": [1e400, {"a" : 1}] }`))
	f.Add([]byte(`{"SpecVersion":"1.0","ID":"1","id":"2","source":"x","type":"t","time":"0000-01-01T00:00:00+23:59","data":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := event.Decode(b)
		if err != nil {
			if !errors.Is(err, event.ErrMalformed) {
				t.Fatalf("Decode: %v, want ErrMalformed", err)
			}
			return
		}
		b1 := e.AppendJSON(nil)
		again, err := event.Decode(b1)
		if err != nil {
			t.Fatalf("%s\nis written as %s\nwhich does not decode: %v", b, b1, err)
		}
		if b2 := again.AppendJSON(nil); string(b1) != string(b2) || !e.Time.Equal(again.Time) {
			t.Fatalf("not stable:\n%s\n%s", b1, b2)
		}
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

package event_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
)

func TestACauseIsABareObjectOrAnEnvelope(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want event.Input
	}{
		"the least":          {`{"text":"hello"}`, event.Input{Text: "hello"}},
		"white space around": {" \r\n\t{\"text\":\"hello\"}\n ", event.Input{Text: "hello"}},
		"unknown fields":     {`{"text":"hello","lang":"en","x":{"text":"no"}}`, event.Input{Text: "hello"}},
		"all fields": {
			`{"text":"a","id":"1","source":"web","mode":"interrupt"}`,
			event.Input{Text: "a", ID: "1", Source: "web", Mode: event.ModeInterrupt},
		},
		"envelope": {
			`{"specversion":"1.0","id":"e1","source":"/web","type":"skandha.sense.input.v1","data":{"text":"hello"}}`,
			event.Input{Text: "hello", ID: "e1"},
		},
		"envelope and own id": {
			`{"specversion":"1.0","id":"e1","source":"/web","type":"skandha.sense.input.v1","data":{"text":"hello","id":"i1"}}`,
			event.Input{Text: "hello", ID: "i1"},
		},
		"nul and surrogates": {`{"text":"\u0000\ud83d\ude00"}`, event.Input{Text: "\x00😀"}},
	} {
		var in event.Input
		if err := event.DecodeCause([]byte(c.body), &in); err != nil || !reflect.DeepEqual(in, c.want) {
			t.Errorf("%s: got %+v, %v", name, in, err)
		}
		if err := in.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNoCauseIsMalformed(t *testing.T) {
	for name, body := range map[string]string{
		"empty": ``, "white space": " \n", "text": `hello`, "string": `"hello"`, "list": `[{"text":"hello"}]`, "null": `null`,
		"number": `1`,
		"cut":    `{"text":"hello"`, "two objects": `{"text":"a"}{"text":"b"}`, "byte order mark": "\ufeff{\"text\":\"a\"}",
		"no UTF-8": "{\"text\":\"\xff\"}", "text is a number": `{"text":1}`, "text is a list": `{"text":["a"]}`,
		"envelope without id":    `{"specversion":"1.0","source":"x","type":"skandha.sense.input.v1","data":{"text":"a"}}`,
		"envelope of a version":  `{"specversion":"0.3","id":"1","source":"x","type":"skandha.sense.input.v1","data":{"text":"a"}}`,
		"envelope with bad data": `{"specversion":"1.0","id":"1","source":"x","type":"skandha.sense.input.v1","data":"hello"}`,
		"specversion a number":   `{"specversion":1.0,"text":"a"}`,
		"too deep":               `{"text":"a","x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		if err := event.DecodeCause([]byte(body), &event.Input{}); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
	other := `{"specversion":"1.0","id":"1","source":"x","type":"skandha.commit.v1","data":{"text":"a"}}`
	if err := event.DecodeCause([]byte(other), &event.Input{}); !errors.Is(err, event.ErrUnknownType) {
		t.Errorf("another type: %v, want ErrUnknownType", err)
	}
}

func TestCheckNamesTheFieldOfAnInput(t *testing.T) {
	ok := event.Input{
		Text: strings.Repeat("x", event.MaxTextBytes), ID: strings.Repeat("i", event.MaxInputIDBytes), Mode: event.ModeQueue,
	}
	if err := ok.Check(); err != nil {
		t.Errorf("at the limits: %v", err)
	}
	for field, in := range map[string]event.Input{
		"text is empty": {},
		"text has":      {Text: ok.Text + "x"},
		"text has 2621": {Text: strings.Repeat("é", event.MaxTextBytes/2) + "é"}, // bytes, not characters
		"id has":        {Text: "a", ID: ok.ID + "i"},
		"mode is":       {Text: "a", Mode: "later"},
	} {
		if err := in.Check(); !errors.Is(err, event.ErrMalformed) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// causes makes a fresh value of each cause.
func causes() []event.Payload {
	return []event.Payload{&event.Input{}, &event.Confirmation{}, &event.Cancel{}, &event.Command{}, &event.Timer{}}
}

// A fuzzed cause is refused with one of the two errors, or survives being sent
// on, bare and in an envelope.
func FuzzDecodeCause(f *testing.F) {
	for _, s := range []string{
		`{"text":"hello"}`, `{"text":"hello","id":"1","source":"web","mode":"interrupt"}`,
		`{"confirmation_id":"t4-p1-c0","hash":"00","approved":true}`, `{"sequence":4}`, `{"input_id":"1","reason":"x"}`,
		`{"name":"/help","args":["a",""],"id":"2"}`, `{"id":"t4-p1-c0"}`,
		`{"specversion":"1.0","id":"e1","source":"/web","type":"skandha.sense.input.v1","data":{"text":"hello"}}`,
		`{"specversion":null,"text":"\ud800\u0000"}`, `{"TEXT":"a","text":"b","Text":"c"}`, `{"sequence":1e2}`, "\ufeff{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, p := range causes() {
			err := event.DecodeCause(body, p)
			if err != nil {
				if !errors.Is(err, event.ErrMalformed) && !errors.Is(err, event.ErrUnknownType) {
					t.Fatalf("%T: %v", p, err)
				}
				continue
			}
			bare := []byte(encode(t, p))
			for _, again := range [][]byte{bare, event.New(ref, "e1", "x", p).AppendJSON(nil)} {
				q := reflect.New(reflect.TypeOf(p).Elem()).Interface().(event.Payload)
				if err := event.DecodeCause(again, q); err != nil {
					t.Fatalf("%T: %s\nsent on as %s: %v", p, body, again, err)
				}
				switch q := q.(type) { // the envelope's id counts where there is no other
				case *event.Input:
					if p.(*event.Input).ID == "" {
						q.ID = ""
					}
				case *event.Command:
					if p.(*event.Command).ID == "" {
						q.ID = ""
					}
				}
				if encode(t, q) != string(bare) {
					t.Fatalf("%T: %s\nbecomes %s", p, bare, encode(t, q))
				}
			}
		}
	})
}

// What one reader takes for a denial no other may take for an approval.
func TestNamesOfACauseAreExact(t *testing.T) {
	for _, body := range []string{
		`{"confirmation_id":"c","hash":"h","approved":false,"Approved":true}`,
		`{"confirmation_id":"c","hash":"h","approved":false,"approved":true}`,
		`{"confirmation_id":"c","Hash":"h","approved":true}`,
		`{"specversion":"1.0","id":"1","source":"s","type":"skandha.sense.confirmation.v1","data":{"confirmation_id":"c","hash":"h","approved":false},` +
			`"Data":{"confirmation_id":"c","hash":"h","approved":true}}`,
	} {
		var c event.Confirmation
		if err := event.DecodeCause([]byte(body), &c); !errors.Is(err, event.ErrMalformed) || c.Approved {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
}

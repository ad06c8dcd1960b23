package executor_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/executor"
)

func aModelCall() executor.Request {
	at := time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC)
	return executor.Request{
		Op: executor.OpRun, Agent: "demo", Session: "s1", Call: "t4-p1", Attempt: "a1", StartBy: at, NotAfter: at,
		Model: &provider.Request{
			System: "Be kind.\nAlways.",
			Messages: []json.RawMessage{
				json.RawMessage(`{"role":"user","text":"a\nb"}`), json.RawMessage(`{"role":"assistant","text":"c"}`),
			},
			Tools: []provider.ToolSpec{
				{Name: "weather:now", Description: "Weather", Args: json.RawMessage(`{"type":"object"}`)},
			},
		},
	}
}

func encodeRequest(t *testing.T, r executor.Request) string {
	t.Helper()
	b, err := executor.Encode(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAModelCallCarriesItsConversationOnLines(t *testing.T) {
	r := aModelCall()
	got := strings.Split(encodeRequest(t, r), "\n")
	want := []string{
		`{"op":"run","agent":"demo","session":"s1","call":"t4-p1","attempt":"a1","start_by":"2026-11-21T08:30:00Z","not_after":"2026-11-21T08:30:00Z","model":{"system":"Be kind.\nAlways."},"lines":3}`,
		`[{"name":"weather:now","description":"Weather","args":{"type":"object"}}]`,
		`{"role":"user","text":"a\nb"}`,
		`{"role":"assistant","text":"c"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if len(r.Model.Messages) != 2 || len(r.Model.Tools) != 1 {
		t.Errorf("encoding changed the request: %+v", r.Model)
	}
}

func TestToolsThatAreEncodedAlreadyReplaceTheRequests(t *testing.T) {
	b, err := executor.Encode(aModelCall(), json.RawMessage(`[]`))
	if err != nil || strings.Split(string(b), "\n")[1] != "[]" {
		t.Errorf("got %s, %v", b, err)
	}
}

// One decoder remembers tools; a request with others gets its own.
func TestADecoderGivesEachRequestItsOwnTools(t *testing.T) {
	var d executor.Decoder
	for _, name := range []string{"a", "a", "b", "a", "", "b"} {
		r := aModelCall()
		if r.Model.Tools[0].Name = name; name == "" {
			r.Model.Tools = nil
		}
		got, err := d.Decode([]byte(encodeRequest(t, r)))
		if err != nil || encodeRequest(t, got) != encodeRequest(t, r) {
			t.Errorf("tool %q: %v, %+v", name, err, got.Model)
		}
	}
}

func TestARequestOnOneLineIsReadToo(t *testing.T) {
	r := aModelCall()
	inline, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{string(inline), string(inline) + "\n", " " + string(inline) + "\r\n \n"} {
		if got, err := new(executor.Decoder).Decode([]byte(body)); err != nil ||
			encodeRequest(t, got) != encodeRequest(t, r) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestDecodeRefusesLinesThatDoNotFitTheFirst(t *testing.T) {
	sound := encodeRequest(t, aModelCall())
	for name, body := range map[string]string{
		"empty":                  "",
		"no JSON":                "run",
		"pretty printed":         "{\n  \"op\": \"run\"\n}",
		"a line is missing":      sound[:strings.LastIndex(sound, "\n")],
		"a line too many":        sound + "\n{}",
		"lines not announced":    strings.Replace(sound, `,"lines":3`, "", 1),
		"lines of no model call": strings.Replace(sound, `"model":{"system":"Be kind.\nAlways."},`, "", 1),
		"negative lines":         strings.Replace(sound, `"lines":3`, `"lines":-1`, 1),
		"very many lines":        strings.Replace(sound, `"lines":3`, `"lines":9000000000`, 1),
		"lines is no number":     strings.Replace(sound, `"lines":3`, `"lines":"3"`, 1),
		"tools are no list":      strings.Replace(sound, `[{"name"`, `{"x":[{"name"`, 1),
	} {
		if body == sound {
			t.Fatalf("%s: nothing was changed", name)
		}
		if r, err := new(executor.Decoder).Decode([]byte(body)); err == nil ||
			!strings.Contains(err.Error(), "executor request") {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}

// What decodes can be written, and read as the same.
func FuzzDecodeRequest(f *testing.F) {
	at := aModelCall()
	b, err := executor.Encode(at, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"op":"ask","agent":"demo","session":"s1","call":"t4-p1-c0","attempt":"a1"}`))
	f.Add([]byte(`{"op":"run","tool":{"name":"x","args":{ "a" : [1e400] },"turn":"t4"}}` + "\n"))
	f.Add([]byte(`{"model":{"messages":[{"role":"user"}, 7 ],"tools":[{"args":{ }}]}}`))
	f.Add([]byte("{\"model\":{},\"lines\":2}\nnull\n\r{ \"role\" : \"user\" }"))
	f.Add([]byte("{\"model\":{},\"lines\":1}\n[{\"args\":null}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := new(executor.Decoder).Decode(b)
		if err != nil {
			return
		}
		b1, err := executor.Encode(r, nil)
		if err != nil {
			return // a time that has no RFC 3339 form
		}
		again, err := new(executor.Decoder).Decode(b1)
		if err != nil {
			t.Fatalf("%q\nis written as %q\nwhich does not decode: %v", b, b1, err)
		}
		b2, err := executor.Encode(again, nil)
		if err != nil || string(b1) != string(b2) {
			t.Fatalf("not stable: %v\n%q\n%q", err, b1, b2)
		}
		if r.Op != again.Op || r.Call != again.Call || r.Attempt != again.Attempt ||
			(r.Model == nil) != (again.Model == nil) {
			t.Fatalf("%+v\nbecomes %+v", r, again)
		}
	})
}

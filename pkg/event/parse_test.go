package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// What parse reads, it reads as encoding/json does; what it does not read is left to
// that.
func FuzzParse(f *testing.F) {
	whole := Event{
		SpecVersion: SpecVersion, ID: "a", Source: "s", Type: TypeUIState,
		Time:  time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC),
		Agent: "main", Session: "one", Turn: "t1", Cause: "1", Data: json.RawMessage(`{"state":"thinking"}`),
	}
	some := whole
	some.Time, some.Turn, some.Data = time.Time{}, "", json.RawMessage("null")
	odd := whole
	odd.ID, odd.Turn = "ä\"\\", "<&>"
	for _, e := range []Event{whole, some, odd} {
		f.Add(e.AppendJSON(nil))
	}
	b := string(whole.AppendJSON(nil))
	for _, s := range []string{
		b + "\n", strings.Replace(b, `"data":`, `"data": `, 1), strings.TrimSuffix(b, "}") + ` }`,
		strings.TrimSuffix(b, "}") + `,"agent":"evil"}`, strings.Replace(b, `"id"`, `"ID"`, 1),
		strings.Replace(b, "2026-", "x026-", 1),
		strings.Replace(b, `"turn":"t1",`, `"turn":null,`, 1), strings.Replace(b, "main", "\xff", 1), `{"specversion":"1.0"`,
		``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := parse(b)
		if !ok {
			return
		}
		var want Event
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("read %s, which is no event: %v", b, err)
		}
		if !got.Time.Equal(want.Time) {
			t.Fatalf("%s: the time is %v, want %v", b, got.Time, want.Time)
		}
		got.Time = want.Time
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s:\ngot  %+v\nwant %+v", b, got, want)
		}
	})
}

// What core writes is read the short way.
func TestParseReadsWhatIsWritten(t *testing.T) {
	for _, e := range []Event{
		{SpecVersion: SpecVersion, ID: "a", Source: "s", Type: TypeUIReady, Data: json.RawMessage(`{}`)},
		{
			SpecVersion: SpecVersion, ID: "a", Source: "s", Type: TypeUIState, Time: time.Now().UTC(), Agent: "main",
			Session: "one",
			Turn:    "t1", Cause: "1", Data: json.RawMessage(`{"state":"thinking"}`),
		},
	} {
		if _, ok := parse(e.AppendJSON(nil)); !ok {
			t.Errorf("%s is not read", e.AppendJSON(nil))
		}
	}
}

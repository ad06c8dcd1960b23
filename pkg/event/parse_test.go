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
	f.Add([]byte("[" + b + "," + b + "]"))
	f.Add([]byte("[" + strings.Replace(b, "thinking", `th\"}{\\`, 1) + "]"))
	f.Add([]byte("[" + strings.Replace(b, `"thinking"`, `{"a":[{}]}`, 1) + "]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := parse(b); ok {
			isRead(t, b, []Event{got}, new(Event))
		}
		for _, batch := range [][]byte{b, []byte("[" + string(b) + "]"), []byte("[" + string(b) + "," + string(b) + "]")} {
			if got, ok := parseBatch(batch); ok {
				isRead(t, batch, got, new([]Event))
			}
		}
	})
}

// isRead checks that encoding/json reads got as well, into an event or a list of them.
func isRead(t *testing.T, b []byte, got []Event, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("read %s, which is not valid: %v", b, err)
	}
	var want []Event
	switch into := into.(type) {
	case *Event:
		want = []Event{*into}
	case *[]Event:
		want = *into
	}
	for i := range got {
		if i < len(want) && got[i].Time.Equal(want[i].Time) {
			got[i].Time = want[i].Time
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\ngot  %+v\nwant %+v", b, got, want)
	}
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
		c := Commit{Header: Header{CommitID: "a"}, Events: []Event{e, e}}
		b, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if batch, ok := parseBatch(b); !ok || len(batch) != 3 {
			t.Errorf("%s is not read as a batch: %+v", b, batch)
		}
	}
}

package result

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// shelf keeps artifacts in memory; with an error it keeps none.
type shelf struct {
	kept map[string]string
	err  error
}

func (s *shelf) PutArtifact(ctx context.Context, name string, data []byte) error {
	if s.err != nil {
		return s.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.kept == nil {
		s.kept = map[string]string{}
	}
	s.kept[name] = string(data)
	return nil
}

var aCall = Name(subject.Ref{Agent: "a", Session: "s"}, "c", "n")

func TestSmallResultsPassUnchanged(t *testing.T) {
	s := &shelf{}
	for _, data := range []any{nil, "x", strings.Repeat("x", MaxData-2), map[string]any{"a": []int{1}}} {
		r := tool.OK(data)
		got := Limit(t.Context(), s, aCall, r)
		if string(got.Data) != string(r.Data) || got.Metadata != nil || len(s.kept) > 0 {
			t.Errorf("%d bytes became %d, metadata %v", len(r.Data), len(got.Data), got.Metadata)
		}
	}
}

func TestLargeDataIsCutAndKeptWhole(t *testing.T) {
	lines := make([]string, 5000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d äöü€😀\"\\\n", i)
	}
	rows := make([]map[string]int, 3000)
	for i := range rows {
		rows[i] = map[string]int{"row": i}
	}
	text := strings.Join(lines, "")
	for name, c := range map[string]struct {
		data any
		keep []string // what must still be there
	}{
		"a string":           {text, []string{`"line 0 `, `line 4999 `, "bytes left out"}},
		"control characters": {strings.Repeat("\x01", MaxData), []string{"bytes left out"}},
		"a string in an object": {
			map[string]any{"path": "p", "size": 7, "content": text},
			[]string{`"path":"p"`, `"size":7`, "line 0 ", "line 4999 ", "bytes left out"},
		},
		"many strings": {
			map[string]any{"a": text, "b": []string{text, text}, "c": "short"}, []string{`"c":"short"`, "bytes left out"},
		},
		"a list with no long string": {rows, []string{`{\"row\":0}`, `{\"row\":2999}`, "bytes left out"}},
		"a large number of digits":   {json.RawMessage(strings.Repeat("7", 2*MaxData)), []string{"bytes left out"}},
		"too large to be taken apart": {
			map[string]string{"x": strings.Repeat(text, 40)}, []string{"bytes left out", `{\"x\":\"line 0 `},
		},
		"nested deeper than is decode": {
			json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), []string{"bytes left out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{}
			r := tool.OK(c.data)
			r.Metadata = map[string]any{"mine": true}
			got := Limit(t.Context(), s, aCall, r)
			if !got.Success || len(got.Data) > MaxData || !json.Valid(got.Data) || !utf8.Valid(got.Data) {
				t.Fatalf("success %v, %d bytes, valid JSON %v", got.Success, len(got.Data), json.Valid(got.Data))
			}
			if len(got.Data) < MaxData/8 {
				t.Errorf("only %d bytes are left", len(got.Data))
			}
			for _, k := range c.keep {
				if !strings.Contains(string(got.Data), k) {
					t.Errorf("%q is gone", k)
				}
			}
			a := got.Metadata["artifact"]
			if a != (Artifact{"a/s/c/n", len(r.Data)}) || s.kept["a/s/c/n"] != string(r.Data) ||
				got.Metadata["truncated"] != true || got.Metadata["mine"] != true {
				t.Errorf("metadata %v", got.Metadata)
			}
		})
	}
}

func TestTheMarkerCountsWhatIsLeftOut(t *testing.T) {
	s := strings.Repeat("€", 1000)
	got := cut(s, 100)
	var n int
	head, rest, _ := strings.Cut(got, "\n[… ")
	_, err := fmt.Sscanf(rest, "%d bytes left out …]", &n)
	_, tail, _ := strings.Cut(rest, "]\n")
	if err != nil || len(head)+len(tail)+n != len(s) || !strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) {
		t.Fatalf("got %q", got)
	}
}

func TestDataThatIsTooLargeIsAnError(t *testing.T) {
	s := &shelf{}
	got := Limit(t.Context(), s, aCall, tool.Result{Success: true, Data: make([]byte, MaxArtifact+1)})
	if got.Success || got.Error.Code != tool.CodeTooLarge || len(s.kept) > 0 {
		t.Fatalf("got %+v", got.Error)
	}
}

func TestAResultThatCannotBeKeptIsStillAResult(t *testing.T) {
	got := Limit(t.Context(), &shelf{err: errors.New("no bus")}, aCall, tool.OK(strings.Repeat("x", 2*MaxData)))
	if !got.Success || len(got.Data) > MaxData || !strings.Contains(fmt.Sprint(got.Metadata["artifact_error"]), "no bus") {
		t.Fatalf("got %v %v", got.Success, got.Metadata)
	}
}

func TestAnArtifactIsKeptAlsoWhenTheCallHasNoTimeLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &shelf{}
	Limit(ctx, s, aCall, tool.OK(strings.Repeat("x", 2*MaxData)))
	if got := slices.Collect(maps.Keys(s.kept)); len(got) != 1 {
		t.Fatalf("kept %v", got)
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	details := slices.Repeat([]string{strings.Repeat("ä", MaxMessage)}, 300)
	got := Limit(t.Context(), &shelf{}, aCall, tool.Failure(tool.CodeFailed, strings.Repeat("x", 1<<20), details...)).Error
	if len(got.Message) > MaxMessage+3 || len(got.Details) != maxDetails+1 || got.Details[maxDetails] != "and 200 more" ||
		len(got.Details[0]) > MaxMessage+3 {
		t.Fatalf("message of %d bytes, %d details", len(got.Message), len(got.Details))
	}
	if len(details[0]) != 2*MaxMessage {
		t.Fatal("the tool's own details were changed")
	}
}

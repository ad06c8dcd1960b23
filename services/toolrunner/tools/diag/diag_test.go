package diag

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner/tools"
)

func TestRecordWritesOneRecord(t *testing.T) {
	var b bytes.Buffer
	r := Record(slog.New(slog.NewTextHandler(&b, nil))).Run(t.Context(),
		tools.Call{Agent: "a", Args: json.RawMessage(`{"level":"warn","message":"hot\nlevel=ERROR"}`)})
	if !r.Success || strings.Count(b.String(), "\n") != 1 || !strings.Contains(b.String(), `level=WARN`) ||
		!strings.Contains(b.String(), `message="hot\nlevel=ERROR" agent=a`) {
		t.Fatalf("got %+v and %s", r, b.String())
	}
}

func TestStatusAnswersWhatItIsTold(t *testing.T) {
	if r := Status(func() any { return map[string]int{"n": 1} }).Run(t.Context(),
		tools.Call{}); string(r.Data) != `{"n":1}` {
		t.Fatalf("got %+v", r)
	}
}

func TestTheToolsAreInternal(t *testing.T) {
	if !Record(nil).Spec.Internal || !Status(nil).Spec.Internal {
		t.Fatal("a model would be offered them")
	}
}

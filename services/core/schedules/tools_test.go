package schedules

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/toolschema"
)

// People see the message of a failed call, and not its details.
func TestTheMessageSaysWhyNothingWasScheduled(t *testing.T) {
	w := worker{s: &Schedules{}, args: map[string]*toolschema.Validator{}}
	for _, spec := range Tools() {
		v, err := toolschema.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		w.args[spec.Name] = v
	}
	r := w.result(t.Context(), executor.Request{Tool: &executor.ToolCall{
		Name: toolCreate, Args: json.RawMessage(`{"name":"n","text":"x","every":"daily"}`), Turn: event.TurnID(7),
	}})
	if r.Error == nil || r.Error.Code != tool.CodeInvalidArgs ||
		!strings.HasPrefix(r.Error.Message, `nothing was scheduled: every is "daily", want a duration`) {
		t.Errorf("%+v", r.Error)
	}
}

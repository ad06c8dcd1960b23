package schedules

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/executor"
)

// People see the message of a failed call, and not its details.
func TestTheMessageSaysWhyNothingWasScheduled(t *testing.T) {
	tools, err := runner.Compile((&Schedules{}).Runs())
	if err != nil {
		t.Fatal(err)
	}
	r := tools.Run(t.Context(), executor.Request{Tool: &executor.ToolCall{
		Name: toolCreate, Args: json.RawMessage(`{"name":"n","text":"x","every":"daily"}`), Turn: event.TurnID(7),
	}}, nil).Result
	if r.Error == nil || r.Error.Code != tool.CodeInvalidArgs ||
		!strings.HasPrefix(r.Error.Message, `nothing was scheduled: every is "daily", want a duration`) {
		t.Errorf("%+v", r.Error)
	}
}

package shell_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
)

// What an executor or a plugin answers is wrapped before it is stored. If it nests as deep
// as JSON can be read, the commit can be written, but not be read again.
func TestAnAnswerThatNestsTooDeepLocksNoSession(t *testing.T) {
	t.Parallel()
	deep := json.RawMessage(strings.Repeat("[", 9_998) + strings.Repeat("]", 9_998))
	s := start(t, core.Config{})
	s.model = once(do(`{}`))
	ends := func(ref subject.Ref) {
		ch := s.follow(ref)
		for range 2 { // the second reads what the first stored
			s.say(ref, event.Input{Text: "go"})
			var rec event.Recorded
			if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
				t.Fatal(err)
			}
			if len(rec.Actions) != 1 {
				t.Fatalf("%+v", rec)
			}
		}
		s.folds(ref)
	}
	t.Run("of a tool", func(*testing.T) {
		s.tool = func(context.Context, contract.ToolCall) tool.Result { return tool.Result{Success: true, Data: deep} }
		ends(subject.Ref{Agent: "main", Session: "tool"})
	})
	t.Run("of a plugin", func(*testing.T) {
		s.tool = func(context.Context, contract.ToolCall) tool.Result { return tool.OK("done") }
		s.plug(plugin.Manifest{Name: "deep", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}}, func(hook.Envelope) string {
			return `{"verb":"answer","data":` + string(deep) + `}`
		})
		ends(subject.Ref{Agent: "main", Session: "plugin"})
	})
}

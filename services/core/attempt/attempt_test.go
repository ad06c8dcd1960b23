package attempt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/executor"
)

// An answer about anything but the requested attempt is not evidence: core asks about the
// attempt again.
func TestAnAnswerIsOfTheAttemptThatWasAskedAbout(t *testing.T) {
	asked := ID{Call: "t1-p1-c0", Attempt: "a2", Instance: "r1"}
	finished := func(call, attempt, instance string) bus.Reply {
		return bus.Reply{
			Data: fmt.Appendf(nil, `{"call":%q,"attempt":%q,"instance":%q,"state":"finished","result":{"success":true}}`, call,
				attempt, instance),
		}
	}
	for name, c := range map[string]struct {
		reply bus.Reply
		state executor.State
		says  string
	}{
		"this attempt":     {finished("t1-p1-c0", "a2", "r1"), executor.Finished, ""},
		"another attempt":  {finished("t1-p1-c0", "a1", "r1"), executor.Running, `attempt "a1" of "t1-p1-c0" at "r1"`},
		"another call":     {finished("t1-p1-c1", "a2", "r1"), executor.Running, `of "t1-p1-c1"`},
		"another instance": {finished("t1-p1-c0", "a2", "r2"), executor.Running, `at "r2"`},
		"nothing":          {bus.Reply{Data: []byte(`{}`)}, executor.Running, `attempt "" of ""`},
		"no JSON":          {bus.Reply{Data: []byte(`{`)}, executor.Unknown, "invalid answer"},
		"it was lost":      {bus.Reply{Err: errors.New("reset")}, executor.Running, "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			a := asked.read(c.reply)
			if a.Gone || a.Call != asked.Call || a.Attempt != asked.Attempt || a.State != c.state ||
				!strings.Contains(a.Message, c.says) {
				t.Errorf("%+v", a)
			}
		})
	}
}

package shell_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/natstest"
)

func TestQueriesThatMakeNoSense(t *testing.T) {
	s := start(t, core.Config{})
	caller, err := s.bus.NewCaller()
	must(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	for _, c := range []struct{ verb, body, want string }{
		{coreapi.VerbSessions, `{"limit":"ten"}`, "query: limit: got string, want a whole number"},
		{coreapi.VerbSessions, `{"agent":"no such.id"}`, `query: agent: invalid id: agent "no such.id": want 1 to 64 characters of A-Z a-z 0-9 _ -`},
		{coreapi.VerbSessions, `[]`, "query: got array, want an object"},
		{coreapi.VerbSession, `{"session":7}`, "query: session: got number, want a string"},
		{coreapi.VerbSession, ``, "query: it is empty; want a JSON object"},
		{coreapi.VerbRefill, `{"all":"yes"}`, "query: all: got string, want true or false"},
		{coreapi.VerbRefill, `{`, "query: not JSON: unexpected end of JSON input (at byte 1)"},
		{coreapi.VerbPlugin, `{"plugin":7}`, "the request cannot be read: plugin: got number, want a string"},
	} {
		_, err := caller.Request(natstest.Context(t), subject.Service(coreapi.ServiceName, c.verb), coreapi.ServiceName, []byte(c.body))
		if bus.CodeOf(err) != bus.CodeInvalidArgument || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.verb, c.body, err, c.want)
		}
	}
}

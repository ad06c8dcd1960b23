package shell_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/redistest"
)

// startWithout starts a core whose view is the store at the URL, which does not work.
func startWithout(t *testing.T, url string) *viewed {
	st, err := open.Store(t.Context(), url, natstest.Logger(t))
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	v := &viewed{system: start(t, core.Config{}), view: st, open: func() store.Store { return st }}
	v.stopCore()
	v.run(st)
	return v
}

// faulty reports whether status names the view's fault.
func (v *viewed) faulty(t *testing.T, says string) func() bool {
	return func() bool {
		st := v.ask(t)
		return fault(st, coreapi.FaultView, says) && st.View.State == coreapi.ViewUnavailable &&
			strings.Contains(st.View.Error, says)
	}
}

// A view that is unavailable when core starts is treated like one that fails later.
func TestACoreStartsBeforeItsView(t *testing.T) {
	t.Parallel()
	url, run := redistest.Later(t)
	v := startWithout(t, url)
	v.turn("early")
	natstest.Eventually(t, "status names the view", v.faulty(t, "connection refused"))
	run()
	v.await(t, 1, 0)
	natstest.Eventually(t, "the view works", func() bool { return len(v.ask(t).Faults) == 0 })
}

func TestACoreNamesAWrongPasswordOfItsView(t *testing.T) {
	t.Parallel()
	v := startWithout(t, strings.Replace(redistest.Start(t), redistest.Password, "hunter2", 1))
	v.turn("early")
	natstest.Eventually(t, "status names the reason", v.faulty(t, "WRONGPASS"))
}

// A client that has seen a turn end finds it in the lists at once.
func TestTheListsHaveWhatAClientHasSeen(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = once(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
	caller := s.client(t)
	ref := subject.Ref{Agent: "main", Session: "seen"}
	ch := s.follow(ref)
	for turn := 1; turn <= 3; turn++ {
		s.say(ref, event.Input{Text: "go"})
		s.await(ch, event.TypeRecorded)
		var page coreapi.SessionsPage
		must(t, caller.Ask(t.Context(), coreapi.VerbSessions, nil, &page))
		if len(page.Sessions) != 1 || page.Sessions[0].Turns != turn {
			t.Fatalf("after turn %d the list of sessions is %+v", turn, page.Sessions)
		}
		var tools []coreapi.ToolInfo
		must(t, caller.Ask(t.Context(), coreapi.VerbTools, nil, &tools))
		i := slices.IndexFunc(tools, func(i coreapi.ToolInfo) bool { return i.Name == "test:do" })
		if i < 0 || tools[i].Used != int64(turn) {
			t.Fatalf("after turn %d the list of tools is %+v", turn, tools)
		}
	}
}

// Status reports an agent's missing provider before a turn fails because of it.
func TestStatusNamesAMissingProvider(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {}, "odd": {Provider: core.Providers{"oracle"}}}})
	caller := s.client(t)
	natstest.Eventually(t, "status names the provider", func() bool {
		var st coreapi.Status
		must(t, caller.Ask(t.Context(), coreapi.VerbStatus, nil, &st))
		return len(st.Faults) == 1 && st.Faults[0].Agent == "odd" &&
			strings.HasPrefix(st.Faults[0].Message, `agent odd has no provider "oracle"`)
	})
}

package shell_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/natstest"
)

// An agent names guides of plugins. They follow its own guide in the order in which it
// names them, whichever plugin arrives first, and are removed with their plugins.
func TestGuidesOfPlugins(t *testing.T) {
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {
		Guide: core.GuideConfig{SystemPrompt: "You are Ada."}, Guides: []string{"kind", "brief"},
	}}})
	var system atomic.Value
	s.asked = func(r provider.Request) { system.Store(r.System) }
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	told := func(want string) {
		t.Helper()
		natstest.Eventually(t, "the model is told "+want, func() bool {
			s.say(ref, event.Input{Text: "hello"})
			s.await(ch, event.TypeRecorded)
			return system.Load() == want
		})
	}
	serve := func(name subject.Plugin, g guide.Guide, answers *atomic.Int64) *plugged {
		p := s.connectPlugin(plugin.Manifest{Name: name, Guides: []string{g.Name}}, nil)
		if _, err := p.bus.Conn().QueueSubscribe(subject.Guide(name), string(name), func(m *nats.Msg) {
			var r guide.Request
			if err := json.Unmarshal(m.Data, &r); err != nil || r.Name != g.Name || r.Agent != "main" {
				t.Errorf("asked with %s", m.Data)
			}
			b, err := json.Marshal(g)
			if answers != nil && answers.Add(1) == 1 {
				b = []byte(`garbage`) // it must be asked again
			}
			if err == nil {
				err = m.Respond(b)
			}
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := p.bus.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.leave)
		p.register()
		return p
	}
	told("You are Ada.")
	serve("shorty", guide.Guide{Name: "brief", SystemPrompt: "Be brief."}, nil)
	told("You are Ada.\n\nBe brief.")
	var answers atomic.Int64
	friendly := serve("friendly", guide.Guide{Name: "kind", SystemPrompt: "Be kind.", InitialMemories: []string{"It is Friday."}}, &answers)
	told("You are Ada.\n\nBe kind.\n\nBe brief.\n\nWhat you remember:\n- It is Friday.\n")
	friendly.leave()
	told("You are Ada.\n\nBe brief.")
}

package shell_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/guidefile"
	"skandha.dev/services/core/shell"
	contract "skandha.dev/services/internal/executor"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// An agent names guides of plugins. They follow its own guide in the order in which it
// names them, whichever plugin arrives first, and are removed with their plugins.
func TestGuidesOfPlugins(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {
		Guide: core.GuideConfig{SystemPrompt: "You are Ada."}, Guides: []string{"kind", "brief"},
	}}})
	var system atomic.Value
	s.asked = func(r provider.Request) { system.Store(r.System) }
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	sees := func(want string) {
		t.Helper()
		natstest.Eventually(t, "the model sees "+want, func() bool {
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
	sees("You are Ada.")
	serve("shorty", guide.Guide{Name: "brief", SystemPrompt: "Be brief."}, nil)
	sees("You are Ada.\n\nBe brief.")
	var answers atomic.Int64
	friendly := serve("friendly",
		guide.Guide{
			Name: "kind", SystemPrompt: "Be kind.", Permissions: []string{"fs.read"}, InitialMemories: []string{"It is Friday."},
		}, &answers)
	sees("You are Ada.\n\nBe kind.\n\nBe brief.\n\nWhat you remember:\n- It is Friday.\n")
	if got := shell.Granted(s.core, "main"); len(got) != 2 || !slices.Equal(got[1], []string{"fs.read"}) {
		t.Errorf("granted is %q", got)
	}
	friendly.leave()
	sees("You are Ada.\n\nBe brief.")
}

// An agent does not answer without the guides that it requires, and core says why they are
// missing: an answer that is no guide is refused, and never loaded in part.
func TestARequiredGuide(t *testing.T) {
	t.Parallel()
	s := start(t,
		core.Config{Agents: map[string]core.AgentConfig{"main": {Guides: []string{"kind"}, Required: []string{"kind"}}}})
	var system atomic.Value
	s.asked = func(r provider.Request) { system.Store(r.System) }
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	fails := func(want string) {
		t.Helper()
		natstest.Eventually(t, "core says "+want, func() bool {
			st := s.core.Status(t.Context())
			return len(st.Guides) == 1 && strings.Contains(st.Guides[0].Reason, want)
		})
		if got := s.core.Status(t.Context()).Guides[0]; got.Agent != "main" || got.Guide != "kind" || !got.Required ||
			got.Stale {
			t.Errorf("got %+v", got)
		}
		s.say(ref, event.Input{Text: "hello"})
		var p event.TurnFailed
		if err := s.await(ch, event.TypeTurnFailed).DataAs(&p); err != nil || p.Code != event.FailNoGuide ||
			!strings.Contains(p.Reason, want) {
			t.Errorf("the turn ended with %+v, %v, want %s", p, err, want)
		}
	}
	serve := func(name subject.Plugin, answer string) *plugged {
		p := s.connectPlugin(plugin.Manifest{Name: name, Guides: []string{"kind"}}, nil)
		if _, err := p.bus.Conn().QueueSubscribe(subject.Guide(name), string(name),
			func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
		if err := p.bus.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.leave)
		p.register()
		return p
	}
	fails("no active plugin")
	bad := serve("bad", `{"name":"kind","system_promt":"Be kind.","temperature":0.9}`)
	fails(`plugin bad was refused: not a guide: unknown field "system_promt"`)
	bad.leave()
	fails("no active plugin")
	good := serve("good",
		`{"systemPrompt":"Be kind.","memoryPolicy":"sliding-window","initialMemories":["It is Friday."]}`)
	natstest.Eventually(t, "the guide is loaded", func() bool { return len(s.core.Status(t.Context()).Guides) == 0 })
	s.say(ref, event.Input{Text: "hello"})
	s.await(ch, event.TypeRecorded)
	if got := system.Load().(string); !strings.HasSuffix(got, "\n\nBe kind.\n\nWhat you remember:\n- It is Friday.\n") {
		t.Errorf("the system prompt is %q", got)
	}

	// While it is missing, nothing is called: it may narrow what the agent may do.
	missing := func() bool { return len(s.core.Status(t.Context()).Guides) == 1 }
	var ran atomic.Bool
	s.tool = func(_ context.Context, c contract.ToolCall) tool.Result {
		if c.Name == "test:do" {
			good.leave()
			natstest.Eventually(t, "the guide is missed", missing)
		} else {
			ran.Store(true)
		}
		return tool.OK("done")
	}
	s.model = func(provider.Message) provider.Response {
		return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)},
			provider.ToolCall{ID: "2", Tool: "test:once", Args: json.RawMessage(`{}`), DependsOn: []string{"1"}})
	}
	s.say(ref, event.Input{Text: "go"})
	s.await(ch, event.TypeActCompleted)
	var second event.ActCompleted
	if err := s.await(ch, event.TypeActCompleted).DataAs(&second); err != nil || second.Result.Error == nil ||
		second.Result.Error.Code != tool.CodeDenied || !strings.Contains(second.Result.Error.Message, `"kind" is required`) {
		t.Errorf("the call after the guide left ended with %+v, %v", second.Result, err)
	}
	var r tool.Result
	must(t,
		s.client(t).Ask(t.Context(), coreapi.VerbCall+".p",
			tool.InternalCall{Agent: "main", Session: "s1", Caller: "p", Tool: "test:inner"}, &r))
	if r.Error == nil || r.Error.Code != tool.CodeDenied || ran.Load() {
		t.Errorf("an internal call gave %+v; something ran: %t", r, ran.Load())
	}
	fails("no active plugin")
}

// A file of a guide takes effect without a restart. After a wrong edit the last good version
// stays, and core says what is wrong.
func TestAGuideOfAFileIsReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) { must(t, os.WriteFile(filepath.Join(dir, "ada.md"), []byte(text), 0o600)) }
	write("---\nlimits: {rounds: 7}\n---\nYou are Ada.")
	s := start(t, core.Config{GuidesDir: dir, Agents: map[string]core.AgentConfig{"main": {
		Guide: core.GuideConfig{SystemPrompt: "Be kind."}, Guides: []string{"ada", "home"}, Required: []string{"ada"},
	}}})
	var system atomic.Value
	s.asked = func(r provider.Request) { system.Store(r.System) }
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	home, _, _ := guidefile.BuiltIn("home")
	sees := func(want string) {
		t.Helper()
		natstest.Eventually(t, "the model sees "+want, func() bool {
			s.say(ref, event.Input{Text: "hello"})
			s.await(ch, event.TypeRecorded)
			return system.Load() == want+"\n\n"+home.SystemPrompt
		})
	}
	sees("Be kind.\n\nYou are Ada.")
	write("---\npermissions: [fs.read]\n---\nYou are Bo.")
	sees("Be kind.\n\nYou are Bo.")
	if got := shell.Granted(s.core, "main"); len(got) != 2 || !slices.Equal(got[1], []string{"fs.read"}) {
		t.Errorf("granted is %q", got)
	}
	write("---\npermissions: [fs.read]\nx: 1\n---\nYou are Cy.")
	natstest.Eventually(t, "core says what is wrong", func() bool {
		st := s.core.Status(t.Context()).Guides
		return len(st) == 1 && st[0].Stale && strings.Contains(st[0].Reason, "ada.md:3: x: unknown key")
	})
	sees("Be kind.\n\nYou are Bo.")
	must(t, os.Remove(filepath.Join(dir, "ada.md")))
	natstest.Eventually(t, "core misses it", func() bool {
		st := s.core.Status(t.Context()).Guides
		return len(st) == 1 && !st[0].Stale && strings.Contains(st[0].Reason, "no file")
	})
	s.say(ref, event.Input{Text: "hello"})
	var p event.TurnFailed
	if err := s.await(ch, event.TypeTurnFailed).DataAs(&p); err != nil || p.Code != event.FailNoGuide {
		t.Errorf("%+v, %v", p, err)
	}
	write("---\n---\nYou are Di.")
	natstest.Eventually(t, "it is loaded", func() bool { return len(s.core.Status(t.Context()).Guides) == 0 })
	sees("Be kind.\n\nYou are Di.")
}

// A file that was wrong from the start may restrict the agent, which does not answer. A plugin's
// guide of the same name is not used instead.
func TestAGuideOfAFileThatWasNeverRight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "kind.md"), []byte("---\nx: 1\n---\nBe kind."), 0o600))
	s := start(t, core.Config{
		GuidesDir: dir, Agents: map[string]core.AgentConfig{"main": {Guides: []string{"kind"}}, "other": {}},
	})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	var p event.TurnFailed
	if err := s.await(ch, event.TypeTurnFailed).DataAs(&p); err != nil || p.Code != event.FailNoGuide ||
		!strings.Contains(p.Reason, "kind.md:2: x: unknown key") {
		t.Errorf("%+v, %v", p, err)
	}
	other := subject.Ref{Agent: "other", Session: "s1"}
	ch = s.follow(other)
	s.say(other, event.Input{Text: "hello"})
	s.await(ch, event.TypeRecorded)
}

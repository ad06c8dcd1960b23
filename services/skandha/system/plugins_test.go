package system_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
)

// guest is a plugin that joins a running system from outside.
type guest struct {
	t      *testing.T
	bus    *journal.Journal
	caller *bus.Caller
	m      plugin.Manifest
}

func join(t *testing.T, s *system.System, m plugin.Manifest, subj string, answer string) *guest {
	t.Helper()
	return joinFor(t, s, rights.Local(subject.Identity(m.Name)), m, subj, answer)
}

// joinFor is join with a charter.
func joinFor(t *testing.T, s *system.System, c rights.Charter, m plugin.Manifest, subj string, answer string) *guest {
	t.Helper()
	if _, err := s.Invite(natstest.Context(t), c); err != nil {
		t.Fatal(err)
	}
	b := natstest.Join(t, s, string(m.Name)) // it sees what the agents do, too
	caller, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	m.Instance = b.Instance()
	g := &guest{t, b, caller, m}
	if _, err := b.Conn().QueueSubscribe(subj, string(m.Name),
		func(q *nats.Msg) { _ = q.Respond([]byte(answer)) }); err != nil {
		t.Fatal(err)
	}
	if l := g.tell(subject.Register, m); l.State != plugin.Active {
		t.Fatalf("got %+v", l)
	}
	return g
}

func (g *guest) tell(v subject.PluginVerb, what any) plugin.Lease {
	g.t.Helper()
	body, err := json.Marshal(what)
	if err != nil {
		g.t.Fatal(err)
	}
	answer, err := g.caller.Request(natstest.Context(g.t), subject.Registry(v, g.m.Name), "core", body)
	if err != nil {
		g.t.Fatalf("%s: %v", v, err)
	}
	var l plugin.Lease
	if err := json.Unmarshal(answer, &l); err != nil {
		g.t.Fatal(err)
	}
	return l
}

// listensAt makes the guest listen once a call has been assigned so many times.
func (g *guest) listensAt(attempts int, subj, answer string) {
	g.t.Helper()
	if _, err := g.bus.Conn().Subscribe("agent.*.*.act.requested", func(m *nats.Msg) {
		var p event.ActRequested
		if e, err := event.Decode(m.Data); err != nil || e.DataAs(&p) != nil || p.Attempts != attempts {
			return
		}
		if _, err := g.bus.Conn().QueueSubscribe(subj, string(g.m.Name),
			func(q *nats.Msg) { _ = q.Respond([]byte(answer)) }); err != nil {
			g.t.Error(err)
		}
	}); err != nil {
		g.t.Fatal(err)
	}
	g.flush()
}

// flush waits until the server has the subscriptions: inputs use another connection.
func (g *guest) flush() {
	g.t.Helper()
	if err := g.bus.Conn().Flush(); err != nil {
		g.t.Fatal(err)
	}
}

// says sends an input to an agent and gives what the agent says in its turn.
func (g *guest) says(ref subject.Ref, text string) string {
	g.t.Helper()
	return g.sends(ref, subject.Input, event.Input{Text: text})
}

// sends sends a cause to an agent and gives what the agent says in its turn.
func (g *guest) sends(ref subject.Ref, kind subject.CauseKind, what any) string {
	g.t.Helper()
	heard := make(chan event.Event, 100)
	sub, err := g.bus.Conn().Subscribe(ref.All(), func(m *nats.Msg) {
		if e, err := event.Decode(m.Data); err == nil && (e.Type == event.TypeUIMessage || e.Type.Terminal()) {
			heard <- e
		}
	})
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	g.flush()
	body, err := json.Marshal(what)
	if err == nil {
		_, err = g.bus.PublishCause(natstest.Context(g.t), ref, kind, "test", "", body)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	var said strings.Builder
	ctx := natstest.Context(g.t)
	for {
		select {
		case e := <-heard:
			if said.Write(e.Data); e.Type.Terminal() {
				return said.String()
			}
		case <-ctx.Done():
			g.t.Fatalf("the turn does not end; so far: %s", said.String())
		}
	}
}

// The guests renew no lease: it holds for the whole test.
const agents = `
plugins: {lease: 10m}
agents:
  main: {}
  seer: {provider: oracle}
`

// A plugin joins a running system: the model uses its tool, an agent is answered
// by it, and when it has left nothing of it is there.
func TestAPluginJoinsARunningSystem(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "skandha.yaml")
	if err := os.WriteFile(config, []byte(agents), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", ConfigFile: config, Models: []adapter.Adapter{scripted.New()},
		Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	weather := join(t, s, plugin.Manifest{Name: "weather", Version: "1.0.0", Tools: []tool.Spec{
		{Name: "weather:now", Description: "Says what the weather is like.", Args: json.RawMessage(`{"type":"object"}`)},
	}}, "tool.weather.weather--now", `{"success":true,"data":"rather grey"}`)
	offered := func(tool string, want bool) {
		t.Helper()
		natstest.Eventually(t, "what core knows of "+tool, func() bool {
			_, is := s.Core().Directory().Lookup(tool)
			return is == want
		})
	}
	offered("weather:now", true)
	if got := weather.says(subject.Ref{Agent: "main", Session: "s"}, "call weather:now {}"); !strings.Contains(got,
		"rather grey") {
		t.Fatalf("got %s", got)
	}
	// This plugin listens only after it was asked: the call certainly did not run
	// before.
	ghost := join(t, s, plugin.Manifest{Name: "ghost", Version: "1.0.0", Tools: []tool.Spec{
		{Name: "ghost:x", Description: "Is not there.", Args: json.RawMessage(`{"type":"object"}`)},
	}}, "elsewhere", "")
	offered("ghost:x", true)
	ghost.listensAt(2, "tool.ghost.ghost--x", `{"success":true,"data":"here after all"}`)
	if got := ghost.says(subject.Ref{Agent: "main", Session: "s"}, "call ghost:x {}"); !strings.Contains(got,
		"here after all") {
		t.Fatalf("got %s", got)
	}
	oracle := join(t, s,
		plugin.Manifest{Name: "oracle", Version: "1.0.0", Providers: []provider.Info{{Name: "oracle", Model: "m"}}},
		"llm.oracle.generate",
		`{"response":{"is_final":true,"text_content":"beware the ides","usage":{"input_tokens":1,"output_tokens":3}}}`)
	if got := oracle.says(subject.Ref{Agent: "seer", Session: "s"}, "what will be?"); !strings.Contains(got,
		"beware the ides") {
		t.Fatalf("got %s", got)
	}
	natstest.Eventually(t, "the leaving", func() bool {
		return weather.tell(subject.Unregister, plugin.Unregister{Instance: weather.m.Instance}).State == plugin.Gone
	})
	weather.bus.Close()
	offered("weather:now", false)
	if got := oracle.says(subject.Ref{Agent: "main", Session: "s"}, "call weather:now {}"); !strings.Contains(got,
		"unknown_tool") {
		t.Fatalf("got %s", got)
	}
}

// A plugin that was invited for some agents serves these alone: another agent has neither its tools nor its models.
func TestAPluginServesTheAgentsOfItsCharter(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "skandha.yaml")
	if err := os.WriteFile(config, []byte("plugins: {lease: 10m}\nagents: {one: {}, two: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", ConfigFile: config, Models: []adapter.Adapter{scripted.New()},
		Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	desk := joinFor(t, s, rights.Charter{
		Name: "desk", Tools: []string{"desk"}, Providers: []string{"deskmodel"}, Agents: []subject.Agent{"one"},
	}, plugin.Manifest{
		Name: "desk", Version: "1.0.0", Providers: []provider.Info{{Name: "deskmodel", Model: "m"}}, Tools: []tool.Spec{
			{Name: "desk:look", Description: "Looks.", Args: json.RawMessage(`{"type":"object"}`)},
		},
	}, "tool.desk.desk--look", `{"success":true,"data":"a tidy desk"}`)
	natstest.Eventually(t, "core knows the plugin's tool and model", func() bool {
		_, is := s.Core().Directory().Lookup("desk:look")
		return is && slices.ContainsFunc(s.Core().Directory().Providers(), func(i provider.Info) bool { return i.Name == "deskmodel" })
	})
	for agent, serves := range map[subject.Agent]bool{"one": true, "two": false} {
		ref := subject.Ref{Agent: agent, Session: "s"}
		if got := desk.says(ref, "call desk:look {}"); strings.Contains(got, "a tidy desk") != serves ||
			strings.Contains(got, "unknown_tool") == serves {
			t.Errorf("%s called the tool: %s", agent, got)
		}
		if got := desk.sends(ref, subject.Command, event.Command{Name: "provider"}); strings.Contains(got, "deskmodel") != serves {
			t.Errorf("%s lists the models: %s", agent, got)
		}
		if got := desk.sends(ref, subject.Command, event.Command{Name: "tools"}); strings.Contains(got, "desk:look") != serves {
			t.Errorf("%s lists the tools: %s", agent, got)
		}
	}
}

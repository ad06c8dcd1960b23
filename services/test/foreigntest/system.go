package foreigntest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
)

// System is a whole system in this process, whose bus listens on loopback. Its
// model obeys package scripted.
type System struct {
	*system.System
	Client    *client.Client
	Workspace string // where the agent's files are

	t   testing.TB
	cfg system.Config
}

// SoonOver is a lease whose end a test can wait for. Until then a program, or this
// process, may be held up by whatever else the machine does.
const SoonOver = 6 * time.Second

// Start brings a system up, until the end of the test.
func Start(t testing.TB) *System {
	t.Helper()
	return StartWithLease(t, registrar.DefaultLease)
}

// StartWithLease is Start with another lease of plugins, and with judges at before_act.
func StartWithLease(t testing.TB, lease time.Duration, judges ...subject.Plugin) *System {
	t.Helper()
	required, err := json.Marshal(judges)
	if err != nil {
		t.Fatal(err)
	}
	return StartWithConfig(t, fmt.Sprintf("plugins: {lease: %v}\nhooks: {before_act: {required: %s}}\n", lease, required))
}

// StartWithConfig is Start with a configuration file.
func StartWithConfig(t testing.TB, config string) *System {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &System{t: t, Workspace: filepath.Join(dir, "workspace")}
	s.cfg = system.Config{
		Data: filepath.Join(dir, "data"), Workspace: s.Workspace, Sync: "relaxed", Log: natstest.Logger(t),
		ConfigFile: file, Models: []provider.Adapter{scripted.New()},
	}
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *System) up() {
	s.t.Helper()
	var err error
	if s.System, err = system.Start(natstest.Context(s.t), s.cfg); err != nil {
		s.t.Fatal(err)
	}
	b, err := s.Connect(natstest.Context(s.t), "test")
	if err != nil {
		s.t.Fatal(err)
	}
	if s.Client, err = client.New(b, "test", s.cfg.Log); err != nil {
		s.t.Fatal(err)
	}
}

func (s *System) down() {
	s.Client.Journal.Close()
	s.Stop()
}

// Restart ends the system, bus and all, and brings it up again where it was.
func (s *System) Restart() {
	s.t.Helper()
	s.down()
	s.up()
}

// RestartElsewhere is Restart while something else listens on the port of the bus.
func (s *System) RestartElsewhere() {
	s.t.Helper()
	was, err := url.Parse(s.Join())
	if err != nil {
		s.t.Fatal(err)
	}
	s.down()
	l, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", was.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	s.up()
	if now, err := url.Parse(s.Join()); err != nil || now.Host == was.Host {
		s.t.Fatalf("the bus is still at %s (%v)", was.Host, err)
	}
}

// Observer is the name of a program that sees all that happens.
const Observer = "observer"

// JoinAs returns the SKANDHA_NATS of a plugin or listener on this machine, or of the [Observer].
func (s *System) JoinAs(name subject.Identity) string {
	s.t.Helper()
	charter := rights.Local(name)
	if name == Observer {
		charter = rights.Charter{Name: name, See: true}
	}
	at, err := s.Invite(natstest.Context(s.t), charter)
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}

// Run starts a program that joins the system under a name; see [System.JoinAs] and [Spawn].
func (s *System) Run(name subject.Identity, dir, program string, args ...string) *Process {
	s.t.Helper()
	return Spawn(s.t, dir, []string{"SKANDHA_NATS=" + s.JoinAs(name), "SKANDHA_DATA=" + s.cfg.Data, "PYTHONDONTWRITEBYTECODE=1"},
		program, args...)
}

// End is how an input ended.
type End struct {
	Answer string                   // if it was recorded
	Failed event.FailCode           // else
	Reason string                   // why it failed
	Calls  []event.Action           // what was done
	Notes  []string                 // of hooks
	Asked  []*event.ToolCallRequest // what a person was asked, and denied
}

// Say says a text in a session and waits for its terminal event. A person who is
// asked whether a call may run says no.
func (s *System) Say(session, text string) (end End) {
	s.t.Helper()
	ref := subject.Ref{Agent: "main", Session: subject.Session(session)}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	items, err := s.Client.Follow(ctx, ref)
	if err != nil {
		s.t.Fatal(err)
	}
	seq, err := s.Client.Say(ctx, ref, event.Input{Text: text})
	if err != nil {
		s.t.Fatal(err)
	}
	in := turn.Input{Sequence: seq}
	over, err := in.Follow(turn.Items(ctx, items), func(i follow.Item) (err error) {
		_ = event.Visitor{ToolCallRequest: func(q event.ToolCallRequest) { // deltas are no events
			end.Asked = append(end.Asked, &q)
			err = s.Client.Confirm(ctx, ref, q, false, "the test says no")
		}}.Visit(i.Event)
		return err
	})
	if err != nil {
		s.t.Fatalf("%q in session %s did not end within %v: %v", text, session, natstest.Patience, err)
	}
	if r := over.Recorded; r != nil {
		end.Answer, end.Calls, end.Notes = r.Answer, r.Actions, r.Notes
	}
	if f := over.Failed; f != nil {
		end.Failed, end.Reason, end.Calls = f.Code, f.Reason, f.Actions
	}
	return end
}

// Plugin is what the registry has of a plugin; its state is "gone" if there is
// nothing of it.
func (s *System) Plugin(name subject.Plugin) registrar.PluginInfo {
	s.t.Helper()
	var all []registrar.PluginInfo
	if err := s.Client.Ask(natstest.Context(s.t), coreapi.VerbPlugins, nil, &all); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	return registrar.PluginInfo{Name: name, State: plugin.Gone}
}

// AwaitPlugin waits until a plugin is in a state.
func (s *System) AwaitPlugin(name subject.Plugin, want plugin.LeaseState) {
	s.t.Helper()
	natstest.Eventually(s.t, "plugin "+string(name)+" is "+string(want),
		func() bool { return s.Plugin(name).State == want })
}

// AwaitTool waits until core offers a tool, or does not offer it any more.
func (s *System) AwaitTool(name string, want bool) {
	s.t.Helper()
	natstest.Eventually(s.t, "the tool "+name+" is offered or not", func() bool {
		var tools []struct {
			Name string `json:"name"`
			Live bool   `json:"live"`
		}
		if err := s.Client.Ask(natstest.Context(s.t), "tools", nil, &tools); err != nil {
			s.t.Fatal(err)
		}
		for _, i := range tools {
			if i.Name == name {
				return i.Live == want
			}
		}
		return !want
	})
}

// AwaitListens waits until a plugin listens on a subject, whatever the registry
// says. It asks with a deadline that has passed, which nobody may answer.
func (s *System) AwaitListens(subj string) {
	s.t.Helper()
	late := make(nats.Header, 1)
	bus.SetDeadline(late, time.UnixMilli(1))
	nc := s.Client.Journal.Conn()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	natstest.Eventually(s.t, "a plugin listens on "+subj, func() bool {
		err := nc.PublishMsg(&nats.Msg{Subject: subj, Reply: inbox, Header: late})
		if err == nil {
			err = nc.FlushWithContext(natstest.Context(s.t))
		}
		if err != nil {
			s.t.Fatal(err)
		}
		// That nobody listens is said before the flush has come back.
		_, err = sub.NextMsg(time.Millisecond)
		return !errors.Is(err, nats.ErrNoResponders)
	})
}

// LeftNothing fails the test if a plugin is anywhere but in the list of those that
// were there.
func (s *System) LeftNothing(name subject.Plugin) {
	s.t.Helper()
	s.AwaitPlugin(name, plugin.Gone)
	if p := s.Plugin(name); len(p.Instances) > 0 {
		s.t.Errorf("plugin %s is gone and has the replicas %v", name, p.Instances)
	}
}

package xmpp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/xmpp"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/xmpptest"
)

const ops, hall = "ops@" + xmpptest.Rooms, "hall@" + xmpptest.Rooms

func config(t *testing.T, s *xmpptest.Server) xmpp.Config {
	t.Helper()
	t.Setenv("SKANDHA_XMPP_PASSWORD", xmpptest.Password)
	all := false
	return xmpp.Config{
		Config: chat.Config{
			Rooms: map[string]chat.Room{ops: {Session: "conformance", Mention: &all}, hall: {}}, Direct: true,
			Allow: []string{"ann@localhost", "bob@localhost"}, Approve: []string{"Ann@localhost"}, PerMinute: 6000,
		},
		JID: "agent@localhost", Password: "env:SKANDHA_XMPP_PASSWORD", Server: s.Addr, Insecure: true, Ping: 2 * time.Second,
	}
}

func gateway(t *testing.T, cfg xmpp.Config, bus *journal.Journal, e contract.Emitter) *xmpp.Gateway {
	t.Helper()
	g, err := xmpp.New("net", cfg, chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	chattest.Run(t, g, e)
	return g
}

func TestConformance(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann")
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		g, err := xmpp.New("net", config(t, s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		var ann *xmpptest.Client
		return listenertest.Subject{Listener: g, TakesIDs: false, Say: func(ctx context.Context, text, _ string) error {
			if ann == nil {
				ann = s.Dial(t, "ann")
			}
			if g.Life().Err() == nil {
				ann.Join(ops, "ann", "skandha")
			}
			ann.Say("groupchat", ops, text)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann", "eve")
	desk := &chattest.Desk{}
	g := gateway(t, config(t, s), chattest.Bus(t), desk)
	ann, eve := s.Dial(t, "ann"), s.Dial(t, "eve")
	for _, r := range []string{ops, hall} {
		ann.Join(r, "someone", "skandha")
		eve.Join(r, "ann", "skandha") // a nickname that looks like an account
	}
	eve.Say("groupchat", ops, "I am ann")
	eve.Say("chat", ops+"/skandha", "a private message in a room")
	eve.Send("<message to='agent@localhost'><result xmlns='urn:xmpp:mam:2' queryid='x' id='y'><forwarded xmlns='urn:xmpp:forward:0'>" +
		"<message xmlns='jabber:client' from='ann@localhost'><body>forged</body></message></forwarded></result></message>")
	ann.Say("groupchat", hall, "not for the agent")
	ann.Say("groupchat", hall, "skandha: what is <up> & 語?")
	ann.SayAs("groupchat", ops, "all is for the agent here", "m1")
	ann.SayAs("chat", "agent@localhost", "privately", "m2")
	eve.Say("chat", "agent@localhost", "let me in")
	in := desk.Await(t, 3)
	for i, want := range []contract.Input{
		{Text: "what is <up> & 語?", Source: "xmpp:net " + hall, ReplyTo: hall},
		{Text: "all is for the agent here", Session: "conformance", Source: "xmpp:net " + ops, ReplyTo: ops},
		{Text: "privately", Source: "xmpp:net", ReplyTo: "ann@localhost"},
	} {
		got := in[i]
		if got.Text != want.Text || got.Source != want.Source || got.ReplyTo != want.ReplyTo || got.From != "ann@localhost" ||
			got.ID == "" || want.Session != "" && got.Session != want.Session {
			t.Errorf("input %d is %+v, want %+v", i, got, want)
		}
	}
	natstest.Eventually(t, "eve's refusal", func() bool { return eve.Saw("You may not talk to this agent.") })
	if r := g.Deliver(natstest.Context(t), chattest.Answer(in[2], "**Only** for you")); !r.Success {
		t.Errorf("delivering to a person: %+v", r.Error)
	}
	if r := g.Deliver(natstest.Context(t), chattest.Answer(in[0], "a < b && \"c\"\x00\n語言</body>")); !r.Success {
		t.Errorf("delivering to a room: %+v", r.Error)
	}
	natstest.Eventually(t, "the answer", func() bool { return eve.Saw("a < b && \"c\"") && eve.Saw("語言</body>") })
	natstest.Eventually(t, "the private answer", func() bool { return ann.Saw("Only for you") })
	if len(desk.Inputs()) != 3 {
		t.Errorf("inputs %+v, want three", desk.Inputs())
	}
}

func TestACallIsApprovedInTheRoom(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann", "bob")
	desk := &chattest.Desk{}
	g := gateway(t, config(t, s), chattest.Bus(t), desk)
	ann, bob := s.Dial(t, "ann"), s.Dial(t, "bob")
	ann.Join(ops, "a", "skandha")
	bob.Join(ops, "b", "skandha")
	m := chattest.Approval(ops, "c1")
	if r := g.Deliver(natstest.Context(t), m); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	var code string
	natstest.Eventually(t, "the request", func() bool {
		for _, l := range ann.Messages() {
			if _, after, found := strings.Cut(l.Body, "Answer: yes "); found {
				code, _, _ = strings.Cut(after, ",")
			}
		}
		return code != ""
	})
	bob.Say("groupchat", ops, "yes "+code)
	natstest.Eventually(t, "the refusal", func() bool { return bob.Saw("You may not answer requests") })
	ann.Say("groupchat", ops, "no "+code+" too risky")
	natstest.Eventually(t, "the confirmation", func() bool { return ann.Saw("Denied: file_system:delete") })
	want := event.Confirmation{ConfirmationID: "c1", Hash: m.Approval.Hash, Reason: "too risky", Source: "xmpp:net " + ops, From: "ann@localhost"}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestARoomThatHidesAccounts(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{Hidden: true}, "agent", "ann")
	ann := s.Dial(t, "ann")
	ann.Join(hall, "ann", "") // and is its owner
	desk := &chattest.Desk{}
	gateway(t, config(t, s), chattest.Bus(t), desk)
	natstest.Eventually(t, "the gateway to be in the room", func() bool { return ann.Sees(hall, "skandha") })
	ann.Say("groupchat", hall, "skandha: do it")
	natstest.Eventually(t, "an explanation", func() bool { return ann.Saw("Your account is unknown here") })
	if in := desk.Inputs(); len(in) != 0 {
		t.Errorf("inputs %+v", in)
	}
}

func TestWhatIsNotDelivered(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent")
	g := gateway(t, config(t, s), chattest.Bus(t), &chattest.Desk{})
	for to, why := range map[string]string{
		"other@" + xmpptest.Rooms + "'/><x": "neither a room", "": "neither a room", "nobody@localhost": "service-unavailable",
	} {
		r := g.Deliver(natstest.Context(t), chattest.To(to, "hello"))
		if r.Success || !strings.Contains(r.Error.Message, why) || r.Metadata[tool.MetadataPermanent] != true {
			t.Errorf("%q: %+v %v; want %q", to, r.Error, r.Metadata, why)
		}
	}
}

// counted checks the results of deliveries, as corrected by probing, against what was seen.
func counted(t *testing.T, seen map[string]int, results map[string]tool.Result) (unknown int) {
	t.Helper()
	for text, r := range results {
		switch n := seen[text]; {
		case n > 1:
			t.Errorf("%q was seen %d times", text, n)
		case r.Success && n == 0:
			t.Errorf("%q counts as sent, but is not in the archive", text)
		case !r.Success && r.Error.Code == tool.CodeOutcomeUnknown:
			unknown++
		case !r.Success && n > 0:
			t.Errorf("%q was seen, but the result is %+v", text, r.Error)
		}
	}
	return unknown
}

// TestServerKilled counts, from outside, what became of messages while the server is killed. Unknown
// outcomes are resolved by probing.
func TestServerKilled(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann")
	g := gateway(t, config(t, s), chattest.Bus(t), &chattest.Desk{})
	const rounds, each = 4, 60
	results := map[string]tool.Result{}
	probed := 0
	for round := range rounds {
		if r := g.Deliver(natstest.Context(t), chattest.To(ops, fmt.Sprintf("first of %d", round))); !r.Success {
			t.Fatalf("delivering: %+v", r.Error)
		}
		kill := time.AfterFunc(time.Duration(round+1)*9*time.Millisecond, func() { _ = s.Signal() })
		var unresolved []contract.Outgoing
		for i := range each {
			m := chattest.To(ops, fmt.Sprintf("message %d.%d.", round, i))
			ctx, cancel := context.WithTimeout(natstest.Context(t), 300*time.Millisecond)
			r := g.Deliver(ctx, m)
			cancel()
			results[m.Text] = r
			if !r.Success && r.Error.Code == tool.CodeOutcomeUnknown {
				unresolved = append(unresolved, m)
			}
			if !r.Success {
				break
			}
		}
		kill.Stop()
		s.Restart()
		for _, m := range unresolved {
			results[m.Text] = g.Probe(natstest.Context(t), m, tool.Begun{At: time.Now()})
			probed++
		}
	}
	if unknown := counted(t, archive(t, s), results); unknown > 0 {
		t.Errorf("%d of %d are unknown after probing", unknown, probed)
	}
	t.Logf("%d messages, %d kills, %d probed", len(results), rounds, probed)
}

// archive returns how many times each message is in the archive of the room.
func archive(t *testing.T, s *xmpptest.Server) map[string]int {
	t.Helper()
	ann := s.Dial(t, "ann")
	ann.Send("<presence to='" + ops + "/counter'><x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='10000'/></x></presence>")
	ann.Join(ops, "counter", "")
	ann.Say("groupchat", ops, "the end")
	natstest.Eventually(t, "the history", func() bool { return ann.Saw("the end") })
	seen := map[string]int{}
	for _, m := range ann.Messages() {
		seen[m.Body]++
	}
	return seen
}

func TestAProbeWithoutAnArchive(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{NoArchive: true}, "agent")
	g := gateway(t, config(t, s), chattest.Bus(t), &chattest.Desk{})
	for _, to := range []string{ops, "ann@localhost"} {
		if r := g.Probe(natstest.Context(t), chattest.To(to, "x"), tool.Begun{At: time.Now()}); r.Success || r.Error.Code != tool.CodeOutcomeUnknown {
			t.Errorf("%s: %+v", to, r)
		}
	}
}

func TestAProbeOfARoomThatForgets(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{Temporary: true}, "agent")
	g := gateway(t, config(t, s), chattest.Bus(t), &chattest.Desk{})
	r := g.Probe(natstest.Context(t), chattest.To(ops, "x"), tool.Begun{At: time.Now()})
	if r.Success || r.Error.Code != tool.CodeOutcomeUnknown || !strings.Contains(r.Error.Message, "not persistent") {
		t.Errorf("%+v", r)
	}
}

func TestAProbeOfDirectMessages(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann")
	bus := chattest.Bus(t)
	g := gateway(t, config(t, s), bus, &chattest.Desk{})
	sent, never := chattest.To("ann@localhost", "sent"), chattest.To("ann@localhost", "never")
	if r := g.Deliver(natstest.Context(t), sent); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	other := gateway(t, config(t, s), bus, &chattest.Desk{}) // another process, after a crash
	if err := g.OnStop(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if r := other.Probe(natstest.Context(t), sent, tool.Begun{At: time.Now()}); !r.Success {
		t.Errorf("of a message that was sent: %+v", r.Error)
	}
	if r := other.Probe(natstest.Context(t), never, tool.Begun{At: time.Now()}); r.Success || r.Error.Code != tool.CodeNotRun {
		t.Errorf("of one that was not: %+v", r)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := xmpp.Config{Config: chat.Config{Direct: true, Allow: []string{"ann@e.org"}}, JID: "agent@e.org", Password: "env:P"}
	chattest.Refused(t, valid, map[string]func(*xmpp.Config){
		"jid is":            func(c *xmpp.Config) { c.JID = "agent" },
		"password is empty": func(c *xmpp.Config) { c.Password = "" },
		"server is":         func(c *xmpp.Config) { c.Server = "e.org" },
		"insecure: the":     func(c *xmpp.Config) { c.Insecure = true },
		"nick is":           func(c *xmpp.Config) { c.Nick = "a/b" },
		"rooms: \"ops\"":    func(c *xmpp.Config) { c.Rooms = map[string]chat.Room{"ops": {}} },
		"allow[0]: \"":      func(c *xmpp.Config) { c.Allow = []string{"ann"} },
		"ping is":           func(c *xmpp.Config) { c.Ping = time.Hour },
	})
}

package irc_test

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
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// config is a gateway that knows people by user@host, as ngircd has no accounts.
func config(s *irctest.Server) irc.Config {
	all := false
	return irc.Config{
		Config: chat.Config{
			Rooms:  map[string]chat.Room{"#ops": {Session: "conformance", Mention: &all}, "#hall": {}},
			Direct: true, Allow: []string{"~ann@127.0.0.1", "~bob@127.0.0.1"}, Approve: []string{"~ann@127.0.0.1"}, PerMinute: 6000,
		},
		Server: s.Addr, Insecure: true, Identify: irc.ByHost, Pace: time.Millisecond, Ping: time.Second,
	}
}

func gateway(t *testing.T, cfg irc.Config, bus *journal.Journal, e contract.Emitter) *irc.Gateway {
	t.Helper()
	g, err := irc.New("net", cfg, chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	chattest.Run(t, g, e)
	return g
}

func TestConformance(t *testing.T) {
	s := irctest.Start(t)
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		g, err := irc.New("net", config(s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		var ann *irctest.Client
		return listenertest.Subject{Listener: g, Say: func(ctx context.Context, text, _ string) error {
			if ann == nil {
				ann = s.Dial(t, "ann")
			}
			if g.Life().Err() == nil {
				ann.Join("#ops", "skandha")
			}
			ann.Say("#ops", text)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s := irctest.Start(t)
	desk := &chattest.Desk{}
	g := gateway(t, config(s), chattest.Bus(t), desk)
	ann, eve := s.Dial(t, "ann"), s.Dial(t, "eve")
	for _, c := range []*irctest.Client{ann, eve} {
		c.Join("#ops", "skandha")
		c.Join("#hall", "skandha")
	}
	eve.Say("#ops", "I am ann")
	eve.Send("NOTICE #ops :a notice")
	ann.Say("#hall", "not for the agent")
	ann.Say("#hall", "\x01VERSION\x01")
	ann.Say("#hall", "Skandha: \x02what\x0f is up? 語")
	ann.Say("#ops", "all is for the agent here")
	ann.Say("skandha", "privately")
	eve.Say("skandha", "let me in")
	in := desk.Await(t, 3)
	for i, want := range []contract.Input{
		{Text: "what is up? 語", Source: "irc:net #hall", ReplyTo: "#hall"},
		{Text: "all is for the agent here", Session: "conformance", Source: "irc:net #ops", ReplyTo: "#ops"},
		{Text: "privately", Source: "irc:net", ReplyTo: "ann!~ann@127.0.0.1"},
	} {
		got := in[i]
		if got.Text != want.Text || got.Source != want.Source || got.ReplyTo != want.ReplyTo || got.From != "~ann@127.0.0.1" ||
			got.ID == "" || want.Session != "" && got.Session != want.Session {
			t.Errorf("input %d is %+v, want %+v", i, got, want)
		}
	}
	natstest.Eventually(t, "eve's refusal", func() bool { return eve.Saw("NOTICE eve :You may not talk to this agent.") })

	if r := g.Deliver(natstest.Context(t), chattest.Answer(in[2], "**Only** for you")); !r.Success {
		t.Errorf("delivering to a person: %+v", r.Error)
	}
	long := "First.\n" + strings.Repeat("語言 ", 300) + "\r\nQUIT :injected\x00\nLast."
	if r := g.Deliver(natstest.Context(t), chattest.Answer(in[0], long)); !r.Success {
		t.Errorf("delivering to a channel: %+v", r.Error)
	}
	natstest.Eventually(t, "the last line", func() bool { return eve.Saw("PRIVMSG #hall :Last.") })
	natstest.Eventually(t, "the private line", func() bool { return ann.Saw("PRIVMSG ann :Only for you") })
	text := ""
	for _, l := range eve.Lines() {
		if l.Target == "#hall" && l.From == "skandha" {
			text += l.Text + " "
		}
	}
	if strings.Count(text, "語言") != 300 || !strings.Contains(text, "QUIT :injected") || strings.Contains(text, "\uFFFD") {
		t.Errorf("people read %q", text)
	}
	if len(desk.Inputs()) != 3 {
		t.Errorf("inputs %+v, want three", desk.Inputs())
	}
}

func TestACallIsApprovedInTheChannel(t *testing.T) {
	s := irctest.Start(t)
	desk, bus := &chattest.Desk{}, chattest.Bus(t)
	cfg := config(s)
	g := gateway(t, cfg, bus, desk)
	ann, bob := s.Dial(t, "ann"), s.Dial(t, "bob")
	ann.Join("#ops", "skandha")
	bob.Join("#ops", "skandha")
	m := chattest.Approval("#ops", "c1")
	if r := g.Deliver(natstest.Context(t), m); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	var code string
	natstest.Eventually(t, "the request", func() bool {
		for _, l := range ann.Lines() {
			if _, after, found := strings.Cut(l.Text, "Answer: yes "); found {
				code, _, _ = strings.Cut(after, ",")
			}
		}
		return code != ""
	})
	if err := g.OnStop(natstest.Context(t)); err != nil { // it is answered at another process
		t.Fatal(err)
	}
	natstest.Eventually(t, "the gateway to be gone", func() bool { return ann.Saw("QUIT") })
	gateway(t, cfg, bus, desk)
	ann.Join("#ops", "skandha")
	bob.Say("#ops", "yes "+code)
	natstest.Eventually(t, "the refusal", func() bool { return bob.Saw("You may not answer requests") })
	ann.Say("#ops", "yes "+code)
	natstest.Eventually(t, "the confirmation", func() bool { return ann.Saw("Approved: file_system:delete") })
	want := event.Confirmation{
		ConfirmationID: "c1", Hash: m.Approval.Hash, Approved: true, Source: "irc:net #ops", From: "~ann@127.0.0.1",
	}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestWhatIsNotDelivered(t *testing.T) {
	s := irctest.Start(t)
	ann := s.Dial(t, "ann")
	ann.Join("#ops", "") // and is its operator
	g := gateway(t, config(s), chattest.Bus(t), &chattest.Desk{})
	ann.Join("#ops", "skandha")
	for to, c := range map[string]struct {
		why       string
		permanent bool
	}{
		"#other":              {"not in rooms", true},
		"ann\r\nQUIT":         {"names no person", true},
		"a b!~ann@127.0.0.1":  {"neither a channel", true},
		"ann":                 {"names no person", true},
		"ann!~eve@127.0.0.1":  {"not online", false},
		"gone!~ann@127.0.0.1": {"not online", false},
		"ann!":                {"not online", false},
	} {
		began := false
		m := chattest.To(to, "hello")
		m.Begin = func(context.Context) error { began = true; return nil }
		r := g.Deliver(natstest.Context(t), m)
		if r.Success || r.Error.Code != tool.CodeFailed || !strings.Contains(r.Error.Message, c.why) || began ||
			(r.Metadata[tool.MetadataPermanent] == true) != c.permanent {
			t.Errorf("%q: %+v %v, begun %v; want %q", to, r.Error, r.Metadata, began, c.why)
		}
	}
	ann.Send("MODE #ops +m") // not for the gateway, which is no operator
	natstest.Eventually(t, "moderation", func() bool { return ann.Saw("MODE #ops +m") })
	if r := g.Deliver(natstest.Context(t), chattest.To("#ops", "one\ntwo")); r.Success || !strings.Contains(r.Error.Message, "refused") {
		t.Errorf("in a moderated channel: %+v", r)
	}
	refused := chattest.To("#ops", "x")
	refused.Begin = func(context.Context) error { return fmt.Errorf("closed") }
	if r := g.Deliver(natstest.Context(t), refused); r.Success || r.Error.Code != tool.CodeFailed || !strings.Contains(r.Error.Message, "closed") {
		t.Errorf("when it must not begin: %+v", r)
	}
}

func TestAKickedGatewayComesBack(t *testing.T) {
	s := irctest.Start(t)
	ann := s.Dial(t, "ann")
	ann.Join("#ops", "") // and is its operator
	g := gateway(t, config(s), chattest.Bus(t), &chattest.Desk{})
	ann.Join("#ops", "skandha")
	ann.Send("KICK #ops skandha :out")
	natstest.Eventually(t, "the kick", func() bool { return ann.Saw("KICK #ops skandha") })
	if r := g.Deliver(natstest.Context(t), chattest.To("#ops", "I am back")); !r.Success {
		t.Errorf("delivering: %+v", r.Error)
	}
	natstest.Eventually(t, "the message", func() bool { return ann.Saw("PRIVMSG #ops :I am back") })
}

func TestANicknameInUse(t *testing.T) {
	s := irctest.Start(t)
	other := s.Dial(t, "skandha")
	desk := &chattest.Desk{}
	g := gateway(t, config(s), chattest.Bus(t), desk)
	ann := s.Dial(t, "ann")
	ann.Join("#ops", "")
	if r := g.Deliver(natstest.Context(t), chattest.To("#ops", "here")); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	ann.Join("#hall", "")
	var nick string
	natstest.Eventually(t, "it says how it is called", func() (found bool) {
		h := g.Health()
		_, nick, found = strings.Cut(h.Reason, "the nickname skandha is in use; connected as ")
		return found && h.State == contract.StateDegraded && !strings.Contains(h.Reason, "not in")
	})
	ann.Join("#hall", nick)
	ann.Say("#hall", "skandha: by the name that people know")
	ann.Say("#hall", nick+": by the other")
	if in := desk.Await(t, 2); in[0].Text != "by the name that people know" || in[1].Text != "by the other" {
		t.Errorf("%+v", in)
	}
	other.Close()
	natstest.Eventually(t, "the nickname to be taken back", func() bool { return ann.Saw("NICK :skandha") })
	natstest.Eventually(t, "all is well", func() bool { return g.Health().State == contract.StateOK })
}

// TestServerKilled counts, from outside, what became of messages while the server is killed.
func TestServerKilled(t *testing.T) {
	s := irctest.Start(t)
	g := gateway(t, config(s), chattest.Bus(t), &chattest.Desk{})
	const rounds, each = 4, 40
	seen := map[string]int{}
	results, atFirst := map[string]tool.Result{}, 0
	for round := range rounds {
		ann := s.Dial(t, "ann")
		ann.Join("#ops", "skandha")
		kill := time.AfterFunc(time.Duration(round+1)*15*time.Millisecond, func() { _ = s.Signal() })
		for i := range each {
			text := fmt.Sprintf("message %d.%d.", round, i)
			ctx, cancel := context.WithTimeout(natstest.Context(t), 300*time.Millisecond)
			results[text] = g.Deliver(ctx, chattest.To("#ops", text))
			cancel()
			if r := results[text]; !r.Success {
				s.Kill()
				if r.Error.Code == tool.CodeOutcomeUnknown {
					atFirst++
					results[text] = g.Probe(natstest.Context(t), chattest.To("#ops", text), tool.Begun{})
				}
				break
			}
		}
		kill.Stop()
		s.Kill()
		natstest.Eventually(t, "the person to be disconnected", ann.Gone)
		for _, l := range ann.Lines() {
			seen[l.Text]++
		}
		s.Restart()
	}
	unknown := 0
	for text, r := range results {
		switch n := seen[text]; {
		case n > 1:
			t.Errorf("%q was seen %d times", text, n)
		case !r.Success && r.Error.Code == tool.CodeOutcomeUnknown:
			unknown++
		case !r.Success && n > 0:
			t.Errorf("%q was seen, but the result is %+v", text, r.Error)
		}
	}
	if unknown > rounds || len(results) < rounds {
		t.Errorf("%d of %d are unknown, want at most one for each of the %d kills", unknown, len(results), rounds)
	}
	t.Logf("%d messages, %d kills, %d unknown, of which %d stay so", len(results), rounds, atFirst, unknown)
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := irc.Config{Config: chat.Config{Direct: true, Allow: []string{"ann"}}, Server: "irc.example.org:6697"}
	chattest.Refused(t, valid, map[string]func(*irc.Config){
		"server is":            func(c *irc.Config) { c.Server = "irc.example.org" },
		"rooms: \"ops\"":       func(c *irc.Config) { c.Rooms = map[string]chat.Room{"ops": {}} },
		"keys.#x":              func(c *irc.Config) { c.Keys = map[string]string{"#x": "env:K"} },
		"nick is":              func(c *irc.Config) { c.Nick = "a b" },
		"identify is":          func(c *irc.Config) { c.Identify = "name" },
		"account and":          func(c *irc.Config) { c.Account = "a" },
		"insecure: a password": func(c *irc.Config) { c.Insecure, c.Password = true, "env:P" },
		"max_lines is":         func(c *irc.Config) { c.MaxLines = 1000 },
		"per_minute is":        func(c *irc.Config) { c.PerMinute = -1 },
	})
	c := valid
	c.Password = "env:SKANDHA_NO_SUCH"
	if err := c.CheckSecrets(); err == nil || !strings.Contains(err.Error(), "password: the environment variable") {
		t.Errorf("a secret that is not there: %v", err)
	}
}

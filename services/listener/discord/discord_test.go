package discord_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/discord"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/discordtest"
	"skandha.dev/services/test/faulttest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

type object = discordtest.Object

// The channels, and the people.
const (
	ops, hall, thread, dm, other = "100001", "100002", "100003", "100004", "100005"
	ann, eve                     = "700001", "700002"
)

func server(t *testing.T) *discordtest.Server {
	t.Helper()
	s := discordtest.Start(t)
	s.Channel(ops, 0, "")
	s.Channel(hall, 0, "")
	s.Channel(other, 0, "")
	s.Channel(thread, 11, hall)
	s.Channel(dm, 1, "", ann)
	return s
}

func config(t *testing.T, s *discordtest.Server) discord.Config {
	t.Helper()
	t.Setenv("SKANDHA_DISCORD_TOKEN", discordtest.Token)
	all := false
	return discord.Config{
		Config: chat.Config{
			Rooms: map[string]chat.Room{ops: {Session: "conformance", Mention: &all}, hall: {}}, Direct: true, Allow: []string{ann}, PerMinute: 6000,
		},
		API: s.URL, Token: "env:SKANDHA_DISCORD_TOKEN",
	}
}

func gateway(t *testing.T, s *discordtest.Server, bus *journal.Journal, e contract.Emitter) *discord.Gateway {
	t.Helper()
	g, err := discord.New("net", config(t, s), chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.Began())
	chattest.Run(t, g, e)
	natstest.Eventually(t, "the gateway to be connected", func() bool { return len(s.Began()) > before })
	return g
}

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		natstest.EnsureStreams(t, b)
		s := server(t)
		g, err := discord.New("net", config(t, s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{Listener: g, TakesIDs: true, Keeps: true, Say: func(ctx context.Context, text, id string) error {
			natstest.Eventually(t, "the gateway to be connected", func() bool { return len(s.Began()) > 0 || g.Life().Err() != nil })
			s.Say(ops, ann, id, text, nil)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s, desk := server(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	mention := object{"mentions": []any{object{"id": discordtest.Bot}}}
	s.Say(ops, eve, "1", "my name is ann", nil)
	s.Say(ops, ann, "2", "by a webhook", object{"webhook_id": "5"})
	s.Say(ops, ann, "3", "by a bot", object{"author": object{"id": "700003", "bot": true}})
	s.Say(ops, discordtest.Bot, "4", "an echo", nil)
	s.Say(ops, ann, "5", "joined", object{"type": 7})
	s.Say(other, ann, "6", "another channel", mention)
	s.Say("100999", ann, "7", "an unknown channel", mention)
	s.Say("../x", ann, "8", "a channel that is none", mention)
	s.Say(hall, ann, "9", "not for the agent", nil)
	s.Event("MESSAGE_CREATE", object{"id": 7, "content": []any{}})
	s.Event("TYPING_START", object{})
	s.Say(hall, ann, "10", "<@"+discordtest.Bot+">: hello 語", mention)
	s.Say(thread, ann, "11", "in the <@"+discordtest.Bot+"> thread", mention)
	s.Say(hall, ann, "12", "a reply", object{"type": 19, "referenced_message": object{"author": object{"id": discordtest.Bot}}})
	s.Say(dm, ann, "13", "privately", nil)
	s.Say(dm, eve, "14", "let me in", nil)
	in := desk.Await(t, 4)
	for i, want := range []contract.Input{
		{ID: "10", Text: "hello 語", ReplyTo: hall},
		{ID: "11", Text: "in the <@" + discordtest.Bot + "> thread", ReplyTo: thread},
		{ID: "12", Text: "a reply", ReplyTo: hall},
		{ID: "13", Text: "privately", ReplyTo: dm},
	} {
		if got := in[i]; got.ID != want.ID || got.Text != want.Text || got.ReplyTo != want.ReplyTo || got.From != ann {
			t.Errorf("input %d is %+v, want %+v", i, got, want)
		}
	}
	natstest.Eventually(t, "eve's refusal", func() bool { return len(s.Sent()) == 1 })
	if len(desk.Inputs()) != 4 || in[0].Session == in[1].Session || in[0].Session != in[2].Session {
		t.Errorf("inputs %+v", desk.Inputs())
	}
	for _, i := range in {
		if r := g.Deliver(natstest.Context(t), chattest.Answer(i, "answer to "+i.ID)); !r.Success {
			t.Errorf("delivering to %s: %+v", i.ReplyTo, r.Error)
		}
	}
	if sent := s.Sent()[1:]; len(sent) != 4 || sent[1]["channel_id"] != thread || sent[3]["channel_id"] != dm {
		t.Errorf("sent %v", sent)
	}
}

func TestNothingIsLostWhileTheConnectionFails(t *testing.T) {
	s, desk, bus := server(t), &chattest.Desk{}, chattest.Bus(t)
	s.Interval = 50 * time.Millisecond
	g := gateway(t, s, bus, desk)
	n := 0
	say := func(count int) {
		for range count {
			n++
			s.Say(ops, ann, fmt.Sprint(1000+n), fmt.Sprint("message ", n), nil)
		}
	}
	say(5)
	desk.Await(t, n)
	s.Drop()
	say(5)
	desk.Await(t, n)
	s.Command(7, nil) // reconnect
	say(5)
	desk.Await(t, n)
	s.Silence() // heartbeats are not acknowledged any more
	began := len(s.Began())
	natstest.Eventually(t, "a new connection", func() bool { return len(s.Began()) > began })
	say(5)
	desk.Await(t, n)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // as if the process died
	_ = g.OnStop(ctx)
	s.Drop()
	say(5)
	g = gateway(t, s, bus, desk) // another one
	desk.Await(t, n)
	if b := s.Began(); slices.Contains(b[1:], "identify") {
		t.Errorf("the connections began by %v, want one session", b)
	}
	s.End()
	s.Drop()
	natstest.Eventually(t, "a new session", func() bool { b := s.Began(); return b[len(b)-1] == "identify" })
	say(1)
	in := desk.Await(t, n)
	for i := range in {
		if in[i].ID != fmt.Sprint(1001+i) {
			t.Fatalf("input %d is %+v", i, in[i])
		}
	}
	_ = g.OnStop(natstest.Context(t))
}

func TestACallIsApprovedByAButton(t *testing.T) {
	s, desk := server(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	if r := g.Deliver(natstest.Context(t), chattest.Approval(ops, "c1")); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	row := s.Sent()[0]["components"].([]any)[0].(object)["components"].([]any)
	yes, no := row[0].(object)["custom_id"], row[1].(object)["custom_id"]
	press := func(id, who, channel string, data any) string {
		before := len(s.Answers())
		s.Event("INTERACTION_CREATE", object{
			"id": id, "token": "t", "type": 3, "channel_id": channel, "data": object{"custom_id": data}, "member": object{"user": object{"id": who}},
		})
		natstest.Eventually(t, "an answer", func() bool { return len(s.Answers()) > before })
		return fmt.Sprint(s.Answers()[before]["data"])
	}
	for _, c := range []struct {
		id, who, channel string
		data             any
		reply            string
	}{
		{"500001", eve, ops, yes, "may not"},
		{"500002", ann, hall, yes, "No request"},
		{"500003", ann, ops, yes, "Approved"},
		{"500004", ann, ops, no, "already answered"},
	} {
		if got := press(c.id, c.who, c.channel, c.data); !strings.Contains(got, c.reply) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	want := event.Confirmation{ConfirmationID: "c1", Hash: strings.Repeat("a", 64), Approved: true, Source: "discord:net " + ops, From: ann}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestWhatBecomesOfADelivery(t *testing.T) {
	s := server(t)
	g := gateway(t, s, chattest.Bus(t), &chattest.Desk{})
	count := func(text string) (n int) {
		for _, m := range s.Sent() {
			if m["content"] == text {
				n++
			}
		}
		return n
	}
	now := tool.Begun{At: time.Now(), Until: time.Now()}
	for name, c := range map[string]struct {
		fault faulttest.Fault
		code  tool.Code
	}{
		"limited":    {faulttest.Limited, tool.CodeFailed},
		"broken":     {faulttest.Broken, tool.CodeOutcomeUnknown},
		"done, 502":  {faulttest.BrokenAfter, tool.CodeOutcomeUnknown},
		"done, lost": {faulttest.LostAfter, tool.CodeOutcomeUnknown},
		"garbage":    {faulttest.Garbage, tool.CodeOutcomeUnknown},
	} {
		s.Fail("/messages", c.fault)
		m := chattest.To(ops, name)
		r := g.Deliver(natstest.Context(t), m)
		if r.Success || r.Error.Code != c.code || c.code == tool.CodeFailed && r.Metadata[tool.MetadataRetryAfter] != int64(250) {
			t.Errorf("%s: %+v %v, want %s", name, r.Error, r.Metadata, c.code)
			continue
		}
		if c.code == tool.CodeFailed {
			continue
		}
		if r := g.Probe(natstest.Context(t), m, now); !r.Success || count(name) != 1 {
			t.Errorf("%s, probe: %+v, sent %d times", name, r, count(name))
		}
	}
	s.Forget()
	old := func(sent time.Duration) tool.Begun {
		return tool.Begun{At: time.Now().Add(-sent), Until: time.Now().Add(-sent)}
	}
	if r := g.Probe(natstest.Context(t), chattest.To(ops, "broken"), old(3*time.Minute)); !r.Success || count("broken") != 1 {
		t.Errorf("an old one that was sent: %+v, sent %d times", r, count("broken"))
	}
	if r := g.Probe(natstest.Context(t), chattest.To(ops, "never"), old(3*time.Minute)); r.Success || r.Error.Code != tool.CodeNotRun {
		t.Errorf("an old one that was not sent: %+v", r)
	}
	long := strings.Repeat("語言 ", 2000)
	if r := g.Deliver(natstest.Context(t), chattest.To(ops, long)); !r.Success {
		t.Errorf("a long answer: %+v", r.Error)
	}
	for _, to := range []string{other, "100999", "", "../../users/@me"} {
		if r := g.Deliver(natstest.Context(t), chattest.To(to, "x")); r.Success || r.Metadata[tool.MetadataPermanent] != true {
			t.Errorf("%q: %+v", to, r)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := discord.Config{Config: chat.Config{Direct: true, Allow: []string{ann}}, Token: "env:T"}
	chattest.Refused(t, valid, map[string]func(*discord.Config){
		"api is":            func(c *discord.Config) { c.API = "http://e.org" },
		"token is empty":    func(c *discord.Config) { c.Token = "" },
		"rooms: \"ops\"":    func(c *discord.Config) { c.Rooms = map[string]chat.Room{"ops": {}} },
		"allow[0]: \"ann\"": func(c *discord.Config) { c.Allow = []string{"ann"} },
		"per_minute is":     func(c *discord.Config) { c.PerMinute = -1 },
	})
	c := valid
	t.Setenv("T", "Bot x")
	if err := c.CheckSecrets(); err == nil || !strings.Contains(err.Error(), "white space") {
		t.Errorf("a token that is none: %v", err)
	}
}

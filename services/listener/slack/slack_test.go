package slack_test

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
	"skandha.dev/services/listener/slack"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/faulttest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/slacktest"
)

type object = slacktest.Object

// The channels, and the people.
const ops, hall, dm, ann, eve = "C0OPS", "C0HALL", "D0ANN", "U0ANN", "U0EVE"

func config(t *testing.T, s *slacktest.Server) slack.Config {
	t.Helper()
	t.Setenv("SKANDHA_SLACK_APP", slacktest.AppToken)
	t.Setenv("SKANDHA_SLACK_BOT", slacktest.BotToken)
	all := false
	return slack.Config{
		Config: chat.Config{
			Rooms: map[string]chat.Room{ops: {Session: "conformance", Mention: &all}, hall: {}}, Direct: true, Allow: []string{ann}, PerMinute: 6000,
		},
		API: s.URL, AppToken: "env:SKANDHA_SLACK_APP", BotToken: "env:SKANDHA_SLACK_BOT",
	}
}

func gateway(t *testing.T, s *slacktest.Server, bus *journal.Journal, e contract.Emitter) *slack.Gateway {
	t.Helper()
	g, err := slack.New("net", config(t, s), chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	chattest.Run(t, g, e)
	return g
}

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		s := slacktest.Start(t)
		g, err := slack.New("net", config(t, s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		return listenertest.Subject{Listener: g, Keeps: true, Say: func(ctx context.Context, text, _ string) error {
			n++
			s.Say(ops, ann, fmt.Sprintf("1.%d", n), text, nil)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s, desk := slacktest.Start(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	at := "<@" + slacktest.Bot + ">"
	s.Say(ops, eve, "1.1", "I am ann", nil)
	s.Say(ops, ann, "1.2", "an app", object{"bot_id": "B1"})
	s.Say(ops, slacktest.Bot, "1.3", "an echo", nil)
	s.Say(ops, ann, "1.4", "edited", object{"subtype": "message_changed"})
	s.Say("C0OTHER", ann, "1.5", at+" another channel", nil)
	s.Say(hall, ann, "1.6", "not for the agent", nil)
	s.Say(hall, ann, "x", at+" without a time", nil)
	s.Envelope("events_api", object{"event": []any{}})
	s.Envelope("slash_commands", object{})
	s.Say(hall, ann, "1.7", at+": is 1 &lt; 2 &amp; see <https://e.org|the page>, <#C1|general>, <https://e.org>?", nil)
	s.Say(hall, ann, "1.8", "in the thread, "+at, object{"thread_ts": "1.7"})
	s.Say(dm, ann, "1.9", "privately", nil)
	s.Say("D0EVE", eve, "1.10", "let me in", nil)
	in := desk.Await(t, 3)
	for i, want := range []contract.Input{
		{ID: hall + ".1.7", Text: "is 1 < 2 & see the page (https://e.org), #general, https://e.org?", ReplyTo: hall},
		{ID: hall + ".1.8", Text: "in the thread, @" + slacktest.Bot, ReplyTo: hall + " 1.7"},
		{ID: dm + ".1.9", Text: "privately", ReplyTo: dm + " " + ann},
	} {
		if got := in[i]; got.ID != want.ID || got.Text != want.Text || got.ReplyTo != want.ReplyTo || got.From != ann {
			t.Errorf("input %d is %+v, want %+v", i, got, want)
		}
	}
	natstest.Eventually(t, "everything to be acknowledged", s.Acknowledged)
	if len(desk.Inputs()) != 3 || in[0].Session == in[1].Session || len(s.Sent()) != 1 {
		t.Errorf("inputs %+v, replies %v", desk.Inputs(), s.Sent())
	}
	for _, i := range in {
		if r := g.Deliver(natstest.Context(t), chattest.Answer(i, "**answer** <!channel> & <@U1>")); !r.Success {
			t.Errorf("delivering to %s: %+v", i.ReplyTo, r.Error)
		}
	}
	sent := s.Sent()[1:]
	if len(sent) != 3 || sent[0]["text"] != "answer &lt;!channel&gt; &amp; &lt;@U1&gt;" || sent[1]["thread_ts"] != "1.7" || sent[2]["channel"] != dm {
		t.Errorf("sent %v", sent)
	}
}

func TestNothingIsLostOrDoubledWhileThingsFail(t *testing.T) {
	s, desk, bus := slacktest.Start(t), &chattest.Desk{}, chattest.Bus(t)
	n := 0
	say := func() {
		for range 5 {
			n++
			s.Say(ops, ann, fmt.Sprintf("1.%d", n), fmt.Sprint("message ", n), nil)
		}
	}
	say() // before the gateway is there
	g := gateway(t, s, bus, desk)
	desk.Await(t, n)
	s.Drop()
	say()
	desk.Await(t, n)
	s.Disconnect()
	say()
	desk.Await(t, n)
	desk.Fail(contract.ErrUnavailable)
	say()
	natstest.Eventually(t, "it to fail", func() bool { return desk.Failed() > 0 })
	s.Repeat()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // as if the process died
	_ = g.OnStop(ctx)
	desk.Fail(nil)
	s.Fail("auth.test", faulttest.Broken)
	s.Fail("apps.connections.open", faulttest.Limited)
	gateway(t, s, bus, desk)
	in := desk.Await(t, n)
	natstest.Eventually(t, "everything to be acknowledged", s.Acknowledged)
	for i := range in {
		if in[i].ID != fmt.Sprintf("%s.1.%d", ops, i+1) {
			t.Fatalf("input %d is %+v", i, in[i])
		}
	}
}

func TestACallIsApprovedByAButton(t *testing.T) {
	s, desk := slacktest.Start(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	if r := g.Deliver(natstest.Context(t), chattest.Approval(hall+" 1.7", "c1")); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	elements := s.Sent()[0]["blocks"].([]any)[1].(object)["elements"].([]any)
	yes, no := elements[0].(object)["value"], elements[1].(object)["value"]
	press := func(who, channel, thread string, value any) string {
		before := len(s.Ephemeral())
		s.Envelope("interactive", object{
			"type": "block_actions", "user": object{"id": who}, "channel": object{"id": channel}, "message": object{"thread_ts": thread},
			"actions": []any{object{"value": value, "action_ts": fmt.Sprint(before)}},
		})
		natstest.Eventually(t, "an answer", func() bool { return len(s.Ephemeral()) > before })
		return fmt.Sprint(s.Ephemeral()[before]["text"])
	}
	for _, c := range []struct {
		who, channel, thread string
		value                any
		reply                string
	}{
		{eve, hall, "1.7", yes, "may not"},
		{ann, hall, "", yes, "No request"},
		{ann, hall, "1.7", yes, "Approved"},
		{ann, hall, "1.7", no, "already answered"},
	} {
		if got := press(c.who, c.channel, c.thread, c.value); !strings.Contains(got, c.reply) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	want := event.Confirmation{ConfirmationID: "c1", Hash: strings.Repeat("a", 64), Approved: true, Source: "slack:net " + hall, From: ann}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestWhatBecomesOfADelivery(t *testing.T) {
	s := slacktest.Start(t)
	g := gateway(t, s, chattest.Bus(t), &chattest.Desk{})
	old := tool.Begun{At: time.Now().Add(-time.Minute), Until: time.Now().Add(-time.Second)}
	for name, c := range map[string]struct {
		fault faulttest.Fault
		code  tool.Code // of the delivery
		sent  bool
	}{
		"limited":    {faulttest.Limited, tool.CodeFailed, false},
		"broken":     {faulttest.Broken, tool.CodeOutcomeUnknown, false},
		"done, 502":  {faulttest.BrokenAfter, tool.CodeOutcomeUnknown, true},
		"done, lost": {faulttest.LostAfter, tool.CodeOutcomeUnknown, true},
		"garbage":    {faulttest.Garbage, tool.CodeOutcomeUnknown, true},
	} {
		for _, to := range []string{ops, hall + " 1.7", dm + " " + ann} {
			s.Fail("chat.postMessage", c.fault)
			m := chattest.To(to, name)
			r := g.Deliver(natstest.Context(t), m)
			if r.Success || r.Error.Code != c.code || c.code == tool.CodeFailed && r.Metadata[tool.MetadataRetryAfter] != int64(2000) {
				t.Errorf("%s: %+v %v, want %s", name, r.Error, r.Metadata, c.code)
				continue
			}
			if c.code == tool.CodeFailed {
				continue
			}
			if r := g.Probe(natstest.Context(t), m, old); r.Success != c.sent || !c.sent && r.Error.Code != tool.CodeNotRun {
				t.Errorf("%s, probe: %+v %+v", name, r, r.Error)
			}
			young := tool.Begun{At: time.Now(), Until: time.Now()}
			if r := g.Probe(natstest.Context(t), m, young); r.Success != c.sent || !c.sent && r.Error.Code != tool.CodeOutcomeUnknown {
				t.Errorf("%s, early probe: %+v %+v", name, r, r.Error)
			}
		}
	}
	for code, want := range map[string]tool.Code{"channel_not_found": tool.CodeFailed, "not_in_channel": tool.CodeFailed, "internal_error": tool.CodeOutcomeUnknown} {
		s.Refuse(code)
		r := g.Deliver(natstest.Context(t), chattest.To(ops, code))
		if r.Success || r.Error.Code != want || (r.Metadata[tool.MetadataPermanent] == true) != (code == "channel_not_found") {
			t.Errorf("%s: %+v %v", code, r.Error, r.Metadata)
		}
	}
	if r := g.Deliver(natstest.Context(t), chattest.To(ann, "a notice to a person")); !r.Success || s.Sent()[len(s.Sent())-1]["channel"] != dm {
		t.Errorf("to a person: %+v", r)
	}
	for _, to := range []string{"C0OTHER", ops + " x", "", "#ops", dm} {
		if r := g.Deliver(natstest.Context(t), chattest.To(to, "x")); r.Success || r.Metadata[tool.MetadataPermanent] != true {
			t.Errorf("%q: %+v", to, r)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := slack.Config{Config: chat.Config{Direct: true, Allow: []string{ann}}, AppToken: "env:A", BotToken: "env:B"}
	chattest.Refused(t, valid, map[string]func(*slack.Config){
		"api is":             func(c *slack.Config) { c.API = "http://e.org" },
		"app_token is empty": func(c *slack.Config) { c.AppToken = "" },
		"bot_token is empty": func(c *slack.Config) { c.BotToken = "" },
		"rooms: \"#ops\"":    func(c *slack.Config) { c.Rooms = map[string]chat.Room{"#ops": {}} },
		"allow[0]: \"ann\"":  func(c *slack.Config) { c.Allow = []string{"ann"} },
		"per_minute is":      func(c *slack.Config) { c.PerMinute = -1 },
	})
	c := valid
	t.Setenv("A", "xoxb-1")
	t.Setenv("B", "xoxb-1")
	if err := c.CheckSecrets(); err == nil || !strings.Contains(err.Error(), "app_token: it does not begin with xapp-") {
		t.Errorf("tokens in the wrong places: %v", err)
	}
}

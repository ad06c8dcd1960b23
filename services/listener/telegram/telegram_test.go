package telegram_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/telegram"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/faulttest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/telegramtest"
)

type object = telegramtest.Object

// The groups, and the people.
const ops, hall, ann, eve = -1001, -1002, 7, 8

func config(t *testing.T, s *telegramtest.Server) telegram.Config {
	t.Helper()
	t.Setenv("SKANDHA_TELEGRAM_TOKEN", telegramtest.Token)
	all := false
	return telegram.Config{
		Config: chat.Config{
			Rooms:  map[string]chat.Room{"-1001": {Session: "conformance", Mention: &all}, "-1002": {}},
			Direct: true, Allow: []string{"7"}, PerMinute: 6000,
		},
		API: s.URL, Token: "env:SKANDHA_TELEGRAM_TOKEN",
	}
}

func gateway(t *testing.T, s *telegramtest.Server, bus *journal.Journal, e contract.Emitter) *telegram.Gateway {
	t.Helper()
	g, err := telegram.New("net", config(t, s), chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	chattest.Run(t, g, e)
	return g
}

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		s := telegramtest.Start(t)
		g, err := telegram.New("net", config(t, s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		return listenertest.Subject{Listener: g, Keeps: true, Say: func(ctx context.Context, text, _ string) error {
			n++
			s.Say(ops, ann, n, text, nil)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s, desk := telegramtest.Start(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	mention := []any{object{"type": "mention", "offset": 0, "length": len("@agent_bot")}}
	s.Say(ops, eve, 1, "I have the user name ann", nil)
	s.Say(ops, ann, 2, "as a channel", object{"sender_chat": object{"id": ops, "type": "channel"}})
	s.Say(hall, ann, 3, "not for the agent", nil)
	s.Say(hall, ann, 4, "@agent_bot: hello 語", object{"entities": mention})
	s.Say(hall, ann, 5, "🎉 @agent_bot in the middle", object{"entities": []any{object{"type": "mention", "offset": 3, "length": 10}}})
	s.Say(hall, ann, 6, "a reply", object{"reply_to_message": object{"message_id": 1, "from": object{"id": telegramtest.ID}}})
	s.Say(hall, ann, 7, "@agent_bot topic", object{"entities": mention, "message_thread_id": 99, "is_topic_message": true})
	s.Say(hall, ann, 8, "@agent_bot", object{"entities": []any{object{"type": "mention", "offset": 5, "length": 1000}, object{"offset": -1}}})
	s.Say(ops, ann, 9, "", nil)
	s.Say(ops, ann, 10, "a bot", object{"from": object{"id": 9, "is_bot": true}})
	s.Say(ann, ann, 11, "/start", nil)
	s.Say(ann, ann, 12, "privately", nil)
	s.Say(eve, eve, 13, "let me in", nil)
	s.Update(object{"edited_message": object{"message_id": 12, "text": "edited"}})
	s.Update(object{"callback_query": object{"id": "x", "from": object{"id": ann}, "data": "something else"}})
	in := desk.Await(t, 5)
	for i, want := range []contract.Input{
		{ID: "-1002.4", Text: "hello 語", ReplyTo: "-1002"},
		{ID: "-1002.5", Text: "🎉 @agent_bot in the middle", ReplyTo: "-1002"},
		{ID: "-1002.6", Text: "a reply", ReplyTo: "-1002"},
		{ID: "-1002.7", Text: "topic", ReplyTo: "-1002 99"},
		{ID: "7.12", Text: "privately", ReplyTo: "7"},
	} {
		if got := in[i]; got.ID != want.ID || got.Text != want.Text || got.ReplyTo != want.ReplyTo || got.From != "7" {
			t.Errorf("input %d is %+v, want %+v", i, got, want)
		}
	}
	natstest.Eventually(t, "everything to be confirmed", s.Confirmed)
	if len(desk.Inputs()) != 5 || in[0].Session == in[3].Session {
		t.Errorf("inputs %+v", desk.Inputs())
	}
	refused := s.Sent()
	if len(refused) == 0 || refused[len(refused)-1]["chat_id"] != float64(eve) {
		t.Errorf("eve reads nothing: %v", refused)
	}
	for _, i := range in {
		if r := g.Deliver(natstest.Context(t), chattest.Answer(i, "**answer**")); !r.Success {
			t.Errorf("delivering to %s: %+v", i.ReplyTo, r.Error)
		}
	}
	sent := s.Sent()[len(refused):]
	if len(sent) != 5 || sent[0]["text"] != "answer" || sent[3]["message_thread_id"] != float64(99) || sent[4]["chat_id"] != float64(ann) {
		t.Errorf("sent %v", sent)
	}
}

func TestNothingIsLostOrDoubledWhileThingsFail(t *testing.T) {
	s, desk, bus := telegramtest.Start(t), &chattest.Desk{}, chattest.Bus(t)
	for i := range 10 {
		s.Say(ops, ann, i+1, fmt.Sprint("away ", i), nil)
	}
	desk.Fail(contract.ErrUnavailable)
	g := gateway(t, s, bus, desk)
	natstest.Eventually(t, "it to fail", func() bool { return desk.Failed() > 0 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // as if the process died
	_ = g.OnStop(ctx)
	desk.Fail(nil)
	s.Fail("getUpdates", faulttest.LostAfter, faulttest.Broken, faulttest.Garbage)
	s.Fail("getMe", faulttest.Broken)
	gateway(t, s, bus, desk)
	in := desk.Await(t, 10)
	natstest.Eventually(t, "everything to be confirmed", s.Confirmed)
	for i := range 10 {
		if in[i].ID != fmt.Sprintf("-1001.%d", i+1) {
			t.Errorf("input %d is %+v", i, in[i])
		}
	}
}

func TestACallIsApprovedByAButton(t *testing.T) {
	s, desk := telegramtest.Start(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	if r := g.Deliver(natstest.Context(t), chattest.Approval("-1001", "c1")); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	row := s.Sent()[0]["reply_markup"].(object)["inline_keyboard"].([]any)[0].([]any)
	yes, no := row[0].(object)["callback_data"], row[1].(object)["callback_data"]
	press := func(id string, who, chat int, data any) string {
		before := len(s.Alerts())
		s.Update(object{"callback_query": object{
			"id": id, "from": object{"id": who, "username": "ann"}, "data": data,
			"message": object{"message_id": 1, "chat": object{"id": chat, "type": "supergroup"}},
		}})
		natstest.Eventually(t, "an answer", func() bool { return len(s.Alerts()) > before })
		return fmt.Sprint(s.Alerts()[before]["text"])
	}
	for _, c := range []struct {
		id        string
		who, chat int
		data      any
		reply     string
	}{
		{"1", eve, ops, yes, "may not"}, {"2", ann, hall, yes, "No request"}, {"3", ann, ops, no, "Denied"}, {"4", ann, ops, yes, "already answered"},
	} {
		if got := press(c.id, c.who, c.chat, c.data); !strings.Contains(got, c.reply) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	want := event.Confirmation{ConfirmationID: "c1", Hash: strings.Repeat("a", 64), Source: "telegram:net -1001", From: "7"}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestWhatBecomesOfADelivery(t *testing.T) {
	s := telegramtest.Start(t)
	g := gateway(t, s, chattest.Bus(t), &chattest.Desk{})
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
		s.Fail("sendMessage", c.fault)
		r := g.Deliver(natstest.Context(t), chattest.To("-1001", name))
		if r.Success || r.Error.Code != c.code || c.code == tool.CodeFailed && r.Metadata[tool.MetadataRetryAfter] != int64(3000) ||
			strings.Contains(r.Error.Message, "telegramtest_token") {
			t.Errorf("%s: %+v %v, want %s", name, r.Error, r.Metadata, c.code)
		}
	}
	before := len(s.Sent())
	long := strings.Repeat("語言 ", 3000)
	if r := g.Deliver(natstest.Context(t), chattest.To("-1001", long)); !r.Success {
		t.Errorf("a long answer: %+v", r.Error)
	}
	text := ""
	for _, m := range s.Sent()[before:] {
		text += fmt.Sprint(m["text"])
	}
	if strings.Count(text, "語言") != 3000 {
		t.Errorf("%d of 3000 words arrived", strings.Count(text, "語言"))
	}
	for _, to := range []string{"-9", "-1001 x", "", "ann", "7 8"} {
		if r := g.Deliver(natstest.Context(t), chattest.To(to, "x")); r.Success || r.Metadata[tool.MetadataPermanent] != true {
			t.Errorf("%q: %+v", to, r)
		}
	}
	if r := g.Probe(natstest.Context(t), chattest.To("-1001", "x"), tool.Begun{}); r.Success || r.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("a probe: %+v", r)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := telegram.Config{Config: chat.Config{Direct: true, Allow: []string{"7"}}, Token: "env:T"}
	chattest.Refused(t, valid, map[string]func(*telegram.Config){
		"api is":             func(c *telegram.Config) { c.API = "http://e.org" },
		"token is empty":     func(c *telegram.Config) { c.Token = "" },
		"rooms: \"ops\"":     func(c *telegram.Config) { c.Rooms = map[string]chat.Room{"ops": {}} },
		"allow[0]: \"@ann\"": func(c *telegram.Config) { c.Allow = []string{"@ann"} },
		"per_minute is":      func(c *telegram.Config) { c.PerMinute = -1 },
	})
	c := valid
	t.Setenv("T", "x/../y")
	if err := c.CheckSecrets(); err == nil || strings.Contains(err.Error(), "x/../y") {
		t.Errorf("a token that is none: %v", err)
	}
}

package matrix_test

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
	"skandha.dev/services/listener/matrix"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/faulttest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/matrixtest"
	"skandha.dev/services/test/natstest"
)

const ops, hall, dm, ann, eve = "!ops:test.invalid", "!hall:test.invalid", "!dm:test.invalid", "@ann:test.invalid", "@eve:test.invalid"

func config(t *testing.T, s *matrixtest.Server) matrix.Config {
	t.Helper()
	t.Setenv("SKANDHA_MATRIX_TOKEN", matrixtest.Token)
	all := false
	return matrix.Config{
		Config: chat.Config{
			Rooms: map[string]chat.Room{ops: {Session: "conformance", Mention: &all}, hall: {}}, Direct: true, Allow: []string{ann},
			PerMinute: 6000,
		},
		Homeserver: s.URL, User: matrixtest.User, Token: "env:SKANDHA_MATRIX_TOKEN",
	}
}

func gateway(t *testing.T, s *matrixtest.Server, bus *journal.Journal, e contract.Emitter) *matrix.Gateway {
	t.Helper()
	g, err := matrix.New("net", config(t, s), chattest.Deps(t, bus))
	if err != nil {
		t.Fatal(err)
	}
	chattest.Run(t, g, e)
	natstest.Eventually(t, "the gateway to read", s.Reading)
	return g
}

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		natstest.EnsureStreams(t, b)
		s := matrixtest.Start(t)
		g, err := matrix.New("net", config(t, s), chattest.Deps(t, b))
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{Listener: g, TakesIDs: true, Keeps: true, Say: func(ctx context.Context, text, id string) error {
			natstest.Eventually(t, "the gateway to read", func() bool { return s.Reading() || g.Life().Err() != nil })
			s.Say(ops, ann, text, id)
			return ctx.Err()
		}}
	})
}

func TestAMessageIsAnsweredInItsPlace(t *testing.T) {
	s, desk := matrixtest.Start(t), &chattest.Desk{}
	s.Members(dm, ann)
	s.Members("!three:test.invalid", ann, eve)
	g := gateway(t, s, chattest.Bus(t), desk)
	message := func(room, sender, id string, c map[string]any) {
		s.Add(matrixtest.Event{Room: room, Sender: sender, ID: id, Type: "m.room.message", Content: c})
	}
	s.Say(ops, eve, "I am ann", "$1")
	s.Say(hall, ann, "not for the agent", "$2")
	message(hall, ann, "$3", map[string]any{"msgtype": "m.text", "body": "agent: hello"})
	message(hall, ann, "$4", map[string]any{"msgtype": "m.text", "body": "by mention", "m.mentions": map[string]any{"user_ids": []any{matrixtest.User}}})
	message(hall, ann, "$5", map[string]any{
		"msgtype": "m.text", "body": "> <@x:y> quoted\n\nagent in the thread", "m.mentions": map[string]any{"user_ids": []any{matrixtest.User}},
		"m.relates_to": map[string]any{"rel_type": "m.thread", "event_id": "$3", "m.in_reply_to": map[string]any{"event_id": "$4"}},
	})
	message(hall, ann, "$6", map[string]any{"msgtype": "m.text", "body": "* agent: edited", "m.relates_to": map[string]any{"rel_type": "m.replace", "event_id": "$3"}})
	message(ops, ann, "$7", map[string]any{"msgtype": "m.image", "body": "a.png"})
	message(ops, "@bot:test.invalid", "$8", map[string]any{"msgtype": "m.notice", "body": "beep"})
	message(ops, ann, "$9", map[string]any{"msgtype": 7, "body": []any{}})
	s.Add(matrixtest.Event{Room: ops, Sender: ann, ID: "$10", Type: "m.room.encrypted", Content: map[string]any{}})
	s.Say("!three:test.invalid", ann, "with a third person", "$11")
	s.Say(dm, ann, "privately", "$12")
	s.Say(ops, ann, "again", "$13")
	s.Say(ops, ann, "again", "$13")
	in := desk.Await(t, 5)
	for _, want := range []contract.Input{
		{ID: "$3", Text: "hello", ReplyTo: hall},
		{ID: "$4", Text: "by mention", ReplyTo: hall},
		{ID: "$5", Text: "agent in the thread", ReplyTo: hall + " $3"},
		{ID: "$12", Text: "privately", ReplyTo: dm + " " + ann},
		{ID: "$13", Text: "again", ReplyTo: ops, Session: "conformance"},
	} {
		found := false
		for _, got := range in {
			found = found || got.ID == want.ID && got.Text == want.Text && got.ReplyTo == want.ReplyTo && got.From == ann &&
				(want.Session == "" || got.Session == want.Session)
		}
		if !found {
			t.Errorf("no input is %+v in %+v", want, in)
		}
	}
	if in[0].Session == in[2].Session {
		t.Error("a thread has the session of its room")
	}
	for _, i := range in {
		if r := g.Deliver(natstest.Context(t), chattest.Answer(i, "answer to "+i.ID)); !r.Success {
			t.Errorf("delivering to %s: %+v", i.ReplyTo, r.Error)
		}
	}
	for _, e := range s.Sent() {
		if _, threaded := e.Content["m.relates_to"]; threaded != (e.Content["body"] == "answer to $5") || e.Content["msgtype"] != "m.notice" {
			t.Errorf("sent %+v", e)
		}
	}
	s.Members(dm, ann, eve)
	if r := g.Deliver(natstest.Context(t), chattest.To(dm+" "+ann, "secret")); r.Success || r.Metadata[tool.MetadataPermanent] != true {
		t.Errorf("delivered to a third person: %+v", r)
	}
	if len(desk.Inputs()) != 5 {
		t.Errorf("inputs %+v", desk.Inputs())
	}
}

func TestNothingIsLostWhileTheGatewayIsAway(t *testing.T) {
	s, desk, bus := matrixtest.Start(t), &chattest.Desk{}, chattest.Bus(t)
	s.Say(ops, ann, "before the gateway was there", "$old")
	g := gateway(t, s, bus, desk)
	s.Say(ops, ann, "one", "$one")
	desk.Await(t, 1)
	if err := g.OnStop(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	for i := range 37 {
		s.Say(ops, ann, fmt.Sprint("away ", i), fmt.Sprint("$a", i))
	}
	s.Limit(5) // the timeline has a gap
	s.Fail("/sync", faulttest.Broken, faulttest.Garbage, faulttest.LostAfter)
	s.Fail("/messages", faulttest.Broken)
	gateway(t, s, bus, desk)
	in := desk.Await(t, 38)
	for i := range 37 {
		if in[i+1].ID != fmt.Sprint("$a", i) {
			t.Fatalf("input %d is %+v", i+1, in[i+1])
		}
	}
	desk.Fail(contract.ErrUnavailable)
	s.Say(ops, ann, "while the bus is away", "$bus")
	natstest.Eventually(t, "it to fail", func() bool { return desk.Failed() > 0 })
	desk.Fail(nil)
	desk.Await(t, 39)
}

func TestAnInvitationToADirectChat(t *testing.T) {
	s := matrixtest.Start(t)
	gateway(t, s, chattest.Bus(t), &chattest.Desk{})
	s.Invite("!of-eve:test.invalid", eve)
	s.Invite(dm, ann)
	natstest.Eventually(t, "the gateway to join", func() bool { return s.Joined(dm) })
	if s.Joined("!of-eve:test.invalid") {
		t.Error("an invitation of somebody who may not talk was accepted")
	}
}

func TestACallIsApprovedInTheThread(t *testing.T) {
	s, desk := matrixtest.Start(t), &chattest.Desk{}
	g := gateway(t, s, chattest.Bus(t), desk)
	if r := g.Deliver(natstest.Context(t), chattest.Approval(ops, "c1")); !r.Success {
		t.Fatalf("delivering: %+v", r.Error)
	}
	_, after, _ := strings.Cut(fmt.Sprint(s.Sent()[0].Content["body"]), "Answer: yes ")
	code, _, _ := strings.Cut(after, ",")
	s.Say(ops, eve, "yes "+code, "$1")
	s.Say(hall, ann, "yes "+code, "$2")
	s.Say(ops, ann, "yes "+code, "$3")
	natstest.Eventually(t, "the answer", func() bool { return len(desk.Answers()) > 0 })
	want := event.Confirmation{
		ConfirmationID: "c1", Hash: strings.Repeat("a", 64), Approved: true, Source: "matrix:net " + ops, From: ann,
	}
	if got := desk.Answers(); len(got) != 1 || got[0] != want {
		t.Errorf("answers %+v, want %+v", got, want)
	}
}

func TestWhatBecomesOfADelivery(t *testing.T) {
	s := matrixtest.Start(t)
	g := gateway(t, s, chattest.Bus(t), &chattest.Desk{})
	count := func(text string) (n int) {
		for _, e := range s.Sent() {
			if e.Content["body"] == text {
				n++
			}
		}
		return n
	}
	now := tool.Begun{At: time.Now(), Until: time.Now()}
	for name, c := range map[string]struct {
		fault faulttest.Fault
		code  tool.Code // of the delivery
	}{
		"limited":    {faulttest.Limited, tool.CodeFailed},
		"broken":     {faulttest.Broken, tool.CodeOutcomeUnknown},
		"done, 502":  {faulttest.BrokenAfter, tool.CodeOutcomeUnknown},
		"lost":       {faulttest.Lost, tool.CodeOutcomeUnknown},
		"done, lost": {faulttest.LostAfter, tool.CodeOutcomeUnknown},
		"garbage":    {faulttest.Garbage, tool.CodeOutcomeUnknown},
	} {
		s.Fail("/send/", c.fault)
		m := chattest.To(ops, name)
		r := g.Deliver(natstest.Context(t), m)
		if r.Success || r.Error.Code != c.code {
			t.Errorf("%s: %+v, want %s", name, r, c.code)
			continue
		}
		if c.code == tool.CodeFailed {
			if r.Metadata[tool.MetadataRetryAfter] != int64(1500) || count(name) != 0 {
				t.Errorf("%s: metadata %v, sent %d times", name, r.Metadata, count(name))
			}
			continue
		}
		s.Fail("/messages", faulttest.Broken)
		if r := g.Probe(natstest.Context(t), m, now); r.Success || r.Error.Code != tool.CodeOutcomeUnknown {
			t.Errorf("%s, probe of a room that cannot be read: %+v", name, r)
		}
		for range 2 {
			if r := g.Probe(natstest.Context(t), m, now); !r.Success || count(name) != 1 {
				t.Errorf("%s, probe: %+v, sent %d times", name, r, count(name))
			}
		}
	}
	s.Forget()
	old := tool.Begun{At: time.Now().Add(-time.Hour), Until: time.Now().Add(-time.Hour)}
	if r := g.Probe(natstest.Context(t), chattest.To(ops, "done, lost"), old); !r.Success || count("done, lost") != 1 {
		t.Errorf("an old one that was sent: %+v, sent %d times", r, count("done, lost"))
	}
	if r := g.Probe(natstest.Context(t), chattest.To(ops, "never"), old); r.Success || r.Error.Code != tool.CodeNotRun || count("never") != 0 {
		t.Errorf("an old one that was not sent: %+v", r)
	}
	for to, want := range map[string]bool{"!other:test.invalid": true, "#ops": true, "": true, ops + "/../x": true} {
		if r := g.Deliver(natstest.Context(t), chattest.To(to, "x")); r.Success || r.Metadata[tool.MetadataPermanent] != want {
			t.Errorf("%q: %+v", to, r)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	valid := matrix.Config{
		Config: chat.Config{Direct: true, Allow: []string{ann}}, Homeserver: "https://e.org", User: "@agent:e.org", Token: "env:T",
	}
	chattest.Refused(t, valid, map[string]func(*matrix.Config){
		"homeserver is":               func(c *matrix.Config) { c.Homeserver = "e.org" },
		"send the token unencrypted":  func(c *matrix.Config) { c.Homeserver = "http://e.org" },
		"user is":                     func(c *matrix.Config) { c.User = "agent" },
		"token is empty":              func(c *matrix.Config) { c.Token = "" },
		"rooms: \"#ops:e.org\" is no": func(c *matrix.Config) { c.Rooms = map[string]chat.Room{"#ops:e.org": {}} },
		"allow[0]: \"ann\"":           func(c *matrix.Config) { c.Allow = []string{"ann"} },
		"per_minute is":               func(c *matrix.Config) { c.PerMinute = -1 },
	})
}

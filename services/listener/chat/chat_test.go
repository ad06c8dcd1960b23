package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/natstest"
)

// desk is an emitter and an answerer that keeps what it gets.
type desk struct {
	mu      sync.Mutex
	inputs  []contract.Input
	answers []event.Confirmation
	fails   error
}

func (d *desk) EmitInput(_ context.Context, in contract.Input) (contract.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmpErr(d.fails, in.Check()); err != nil {
		return contract.Receipt{}, err
	}
	d.inputs = append(d.inputs, in)
	return contract.Receipt{ID: in.ID, Sequence: uint64(len(d.inputs))}, nil
}

func (d *desk) Confirm(_ context.Context, _ subject.Ref, a event.Confirmation) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails != nil {
		return 0, d.fails
	}
	d.answers = append(d.answers, a)
	return uint64(len(d.answers)), nil
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// rig is a hub on a bus of the test.
type rig struct {
	*chat.Hub
	*desk
	now      time.Time
	waits    bool
	progress *client.Progress // instead of waits
	then     func()           // after each look at progress
}

func config() chat.Config {
	listens := false
	return chat.Config{
		Rooms:  map[string]chat.Room{"#ops": {Session: "ops", Mention: &listens}, "#hall": {Allow: []string{"*"}}},
		Direct: true, Allow: []string{"ann", "bob"}, Approve: []string{"ann"}, PerMinute: 5,
	}
}

func newRig(t *testing.T, cfg chat.Config) *rig {
	t.Helper()
	r := &rig{desk: &desk{}, now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), waits: true}
	bus := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, bus)
	r.Hub = r.again(t, cfg, chat.Deps{
		Bus: bus, Logger: natstest.Logger(t), Now: func() time.Time { return r.now },
		Progress: func(context.Context, subject.Ref, string) (client.Progress, error) {
			if r.progress != nil {
				now := *r.progress
				if r.then != nil {
					r.then()
				}
				return now, nil
			}
			return client.Progress{Waits: r.waits}, nil
		},
	})
	return r
}

// again makes a hub, as a process does that is started again.
func (r *rig) again(t *testing.T, cfg chat.Config, deps chat.Deps) *chat.Hub {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h, err := chat.New("net", "irc", cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(r.desk); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Stop(ctx)
	})
	return h
}

func (r *rig) say(t *testing.T, m chat.Message) string {
	t.Helper()
	reply, err := r.Handle(natstest.Context(t), m)
	if err != nil {
		t.Fatalf("%q: %v", m.Text, err)
	}
	return reply
}

func TestWhoMayTalk(t *testing.T) {
	r := newRig(t, config())
	for name, c := range map[string]struct {
		message chat.Message
		reply   string // part of it
		input   bool
	}{
		"an account in a room":              {chat.Message{Room: "#ops", Account: "ann", Text: "hi"}, "", true},
		"a name that looks like an account": {chat.Message{Room: "#ops", Name: "ann", Text: "hi"}, "", false},
		"and that names the agent":          {chat.Message{Room: "#ops", Name: "ann", Text: "hi", Addressed: true}, "log in", false},
		"another account":                   {chat.Message{Room: "#ops", Account: "eve", Text: "hi"}, "", false},
		"another account, directly":         {chat.Message{Account: "eve", Text: "hi"}, "You may not talk", false},
		"any account in a public room":      {chat.Message{Room: "#hall", Account: "zoe", Text: "hi", Addressed: true}, "", true},
		"one that does not name the agent":  {chat.Message{Room: "#hall", Account: "ann", Text: "hi"}, "", false},
		"no account in a public room":       {chat.Message{Room: "#hall", Name: "x", Text: "hi", Addressed: true}, "log in", false},
		"a room that is not configured":     {chat.Message{Room: "#other", Account: "ann", Text: "hi", Addressed: true}, "", false},
		"a person, directly":                {chat.Message{Account: "bob", Text: "hi"}, "", true},
		"a program":                         {chat.Message{Room: "#hall", Account: "feed", Text: "hi", Addressed: true, Program: true}, "", false},
		"a command":                         {chat.Message{Account: "bob", Text: "/reset"}, "not available", false},
	} {
		before := len(r.inputs)
		reply := r.say(t, c.message)
		if got := len(r.inputs) > before; got != c.input || !strings.Contains(reply, c.reply) || (c.reply == "") != (reply == "") {
			t.Errorf("%s: input %v, reply %q; want %v, %q", name, got, reply, c.input, c.reply)
		}
		if got := r.inputs; c.input && (got[before].From != c.message.Account || got[before].Origin != "") {
			t.Errorf("%s: the input is %+v", name, got[before])
		}
	}
}

func TestWhatOthersSayIsData(t *testing.T) {
	cfg := config()
	cfg.Others = chat.OthersData
	r := newRig(t, cfg)
	r.say(t, chat.Message{Room: "#ops", Account: "eve", Name: "boss", Text: "delete it"})
	r.say(t, chat.Message{Name: "boss", Text: "delete it"})
	if len(r.inputs) != 2 || r.inputs[0].Origin != "chat:irc/eve" || r.inputs[1].Origin != "chat:irc/unknown" ||
		r.inputs[1].From != "" || r.inputs[1].Session == r.inputs[0].Session {
		t.Errorf("the inputs are %+v", r.inputs)
	}
}

func TestAConversationIsASession(t *testing.T) {
	cfg := config()
	on := false
	for _, room := range []string{"#a b", "#a-b", "#會議室", "#" + strings.Repeat("x", 200), "#" + strings.Repeat("x", 201)} {
		cfg.Rooms[room] = chat.Room{Mention: &on}
	}
	cfg.Allow, cfg.PerMinute = append(cfg.Allow, "a_b", "a-b", "ANN"), 100
	r := newRig(t, cfg)
	seen := map[subject.Session]chat.Message{}
	said := func(m chat.Message) subject.Session {
		m.Text = "hi"
		r.say(t, m)
		return r.inputs[len(r.inputs)-1].Session
	}
	for _, m := range []chat.Message{
		{Room: "#ops", Account: "ann"},
		{Room: "#ops", Thread: "1", Account: "ann"},
		{Room: "#ops", Thread: "2", Account: "ann"},
		{Room: "#a b", Account: "ann"},
		{Room: "#a-b", Account: "ann"},
		{Room: "#會議室", Account: "ann"},
		{Room: "#" + strings.Repeat("x", 200), Account: "ann"},
		{Room: "#" + strings.Repeat("x", 201), Account: "ann"},
		{Account: "ann"},
		{Account: "ANN"},
		{Account: "a_b"},
		{Account: "a-b"},
	} {
		s := said(m)
		if other, twice := seen[s]; twice || !subject.Valid(string(s)) {
			t.Errorf("%+v is session %q, as is %+v", m, s, other)
		}
		if again := said(m); again != s {
			t.Errorf("%+v is session %q, then %q", m, s, again)
		}
		seen[s] = m
	}
	if a, b := said(chat.Message{Room: "#ops", Account: "ann"}), said(chat.Message{Room: "#ops", Account: "bob"}); a != "ops" || a != b {
		t.Errorf("two people in a room are in sessions %q and %q", a, b)
	}
}

func TestAMessageThatIsRepeatedIsOneInput(t *testing.T) {
	r := newRig(t, config())
	long := strings.Repeat("x", 300)
	for _, id := range []string{"$1", "$1", long, long, "a\nb"} {
		r.say(t, chat.Message{Account: "ann", Text: "hi", ID: id})
	}
	if in := r.inputs; in[0].ID != "$1" || in[1].ID != "$1" || in[2].ID != in[3].ID || in[2].ID == in[4].ID {
		t.Errorf("the ids are %q %q %q %q %q", in[0].ID, in[1].ID, in[2].ID, in[3].ID, in[4].ID)
	}
}

func TestASenderHasARate(t *testing.T) {
	r := newRig(t, config())
	var replies []string
	for range 20 {
		if s := r.say(t, chat.Message{Account: "ann", Text: "hi"}); s != "" {
			replies = append(replies, s)
		}
	}
	r.say(t, chat.Message{Account: "bob", Text: "hi"})
	if len(r.inputs) != 6 || len(replies) != 1 || !strings.Contains(replies[0], "at most 5 in a minute") {
		t.Errorf("%d inputs, want five and bob's; replies %q", len(r.inputs), replies)
	}
	r.now = r.now.Add(13 * time.Second)
	r.say(t, chat.Message{Account: "ann", Text: "hi"})
	if len(r.inputs) != 7 {
		t.Errorf("%d inputs after a while, want 7", len(r.inputs))
	}
}

func TestWhatTheLogDoesNotAcknowledgeIsAnError(t *testing.T) {
	r := newRig(t, config())
	r.fails = contract.ErrUnavailable
	if _, err := r.Handle(natstest.Context(t), chat.Message{Account: "ann", Text: "hi"}); !errors.Is(err, contract.ErrUnavailable) {
		t.Errorf("Handle: %v, want ErrUnavailable", err)
	}
	replies := make(chan string, 1)
	r.Take(chat.Message{Account: "ann", Text: "hi"}, func(s string) { replies <- s })
	if s := <-replies; !strings.Contains(s, "may not have been stored") {
		t.Errorf("the sender reads %q", s)
	}
	r.fails = contract.ErrRefused
	if s := r.say(t, chat.Message{Account: "ann", Text: "hi"}); !strings.Contains(s, "not accepted") {
		t.Errorf("the sender reads %q", s)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for want, c := range map[string]chat.Config{
		"rooms is empty":        {Allow: []string{"a"}},
		"allow is empty":        {Direct: true},
		"others is \"x\"":       {Direct: true, Allow: []string{"a"}, Others: "x"},
		"approve[0] is \"*\"":   {Direct: true, Allow: []string{"a"}, Approve: []string{"*"}},
		"rooms.#a.allow[0] has": {Rooms: map[string]chat.Room{"#a": {Allow: []string{""}}}},
		"rooms.#a.session":      {Allow: []string{"a"}, Rooms: map[string]chat.Room{"#a": {Session: "a b"}}},
		"also the session of #a": {Allow: []string{"a"}, Rooms: map[string]chat.Room{
			"#a": {Session: "a"}, "#b": {Session: "a"},
		}},
		"agent": {Direct: true, Allow: []string{"a"}, Agent: "a b"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
	c := chat.Config{Rooms: map[string]chat.Room{"#A": {}, "#a": {}}}
	if _, err := c.Canonical(strings.ToLower, strings.ToLower); err == nil {
		t.Error("a room that is listed twice was accepted")
	}
}

// A request that several people must approve can be answered by each of them, and each reads how far it
// is.
func TestSeveralPeopleApproveInARoom(t *testing.T) {
	cfg := config()
	cfg.Approve = []string{"ann", "bob", "cid"}
	r := newRig(t, cfg)
	at, m := chat.Place{Room: "#ops"}, approval(r, "k1")
	m.Approval.Needs = "2 people of ops must approve it"
	shown, err := r.Show(natstest.Context(t), at, m)
	if err != nil || !strings.Contains(shown.Text, "Needed: 2 people of ops must approve it") {
		t.Fatalf("%s, %v", shown.Text, err)
	}
	for i, c := range []struct {
		account string
		then    client.Progress
		want    string
	}{
		{"ann", client.Progress{Waits: true, Approved: []string{"ann"}}, "still waits for approval. Approved by ann. Needed: 2 people of ops must approve it."},
		{"cid", client.Progress{Waits: true, Approved: []string{"ann"}}, "still waits for approval. Approved by ann."},
		{"bob", client.Progress{}, "Approved: file_system:delete"},
	} {
		r.progress = &c.then
		r.progress.Until = uint64(i + 1)
		if i == 2 { // until the answer is stored, the request waits
			r.progress = &client.Progress{Waits: true, Until: 2}
			r.then = func() { r.progress = &c.then }
		}
		if s := r.say(t, chat.Message{Room: "#ops", Account: c.account, Text: "yes " + shown.Code}); !strings.Contains(s, c.want) {
			t.Errorf("%s reads %q, want %q", c.account, s, c.want)
		}
	}
	if len(r.answers) != 3 {
		t.Fatalf("%d answers are stored", len(r.answers))
	}
}

func approval(r *rig, key string) contract.Outgoing {
	return contract.Outgoing{
		Agent: "main", Session: "ops", Key: key, Delivery: tool.Delivery{
			Kind: tool.KindApproval, To: "#ops", Link: "https://page.example/s", Approval: &tool.Approval{
				ConfirmationID: "call-" + key, Hash: strings.Repeat("a", 64), Tool: "file_system:delete",
				Args: json.RawMessage(`{"path":"a\u202e.txt","password":"hunter2","url":"https://u:p@example.org/?token=hunter2",
					"headers":{"X-Api-Key":"hunter2"},"body":"{\"password\":\"hunter2\"}"}`),
				ExpiresAt: r.now.Add(15 * time.Minute), Warning: "deletes\nit",
			},
		},
	}
}

func TestAnApprovalIsAnsweredInPlace(t *testing.T) {
	r := newRig(t, config())
	at, m := chat.Place{Room: "#ops"}, approval(r, "k1")
	shown, err := r.Show(natstest.Context(t), at, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"file_system:delete", "a .txt", "(hidden)", "Warning: deletes it", "Expires: 2026-11-26 12:15 UTC", "yes " + shown.Code, "no " + shown.Code, m.Link,
	} {
		if !strings.Contains(shown.Text, want) {
			t.Errorf("the message lacks %q:\n%s", want, shown.Text)
		}
	}
	if strings.Contains(shown.Text, "hunter2") || strings.Contains(shown.Text, "u:p@") {
		t.Errorf("the message shows a secret:\n%s", shown.Text)
	}
	if again, err := r.Show(natstest.Context(t), at, m); err != nil || again.Code != shown.Code {
		t.Errorf("repeated, the code is %q, %v; want %q", again.Code, err, shown.Code)
	}
	in := func(room, account, text string) string {
		return r.say(t, chat.Message{Room: room, Account: account, Text: text})
	}
	for _, c := range []struct{ room, account, text, reply string }{
		{"#ops", "bob", "yes " + shown.Code, "may not answer"},
		{"#ops", "eve", "yes " + shown.Code, ""},
		{"#hall", "ann", "yes " + shown.Code, "No request"},
		{"", "ann", "yes " + shown.Code, "No request"},
		{"#ops", "ann", "yes a1b2c3d4", "No request"},
	} {
		if reply := in(c.room, c.account, c.text); !strings.Contains(reply, c.reply) || len(r.answers) != 0 {
			t.Errorf("%+v: reply %q, answers %+v", c, reply, r.answers)
		}
	}
	if reply := in("#ops", "ann", "YES "+strings.ToUpper(shown.Code)); !strings.Contains(reply, "Approved: file_system:delete") {
		t.Errorf("the reply is %q", reply)
	}
	want := event.Confirmation{
		ConfirmationID: "call-k1", Hash: m.Approval.Hash, Approved: true, Source: "irc:net #ops", From: "ann",
	}
	if len(r.answers) != 1 || r.answers[0] != want {
		t.Errorf("answers %+v, want %+v", r.answers, want)
	}
	if reply := in("#ops", "ann", "no "+shown.Code); !strings.Contains(reply, "already answered by ann") || len(r.answers) != 1 {
		t.Errorf("answered again: %q, %+v", reply, r.answers)
	}
	if len(r.inputs) != 0 {
		t.Errorf("answers became inputs: %+v", r.inputs)
	}
}

func TestWhatCannotBeAnsweredAnyMore(t *testing.T) {
	r := newRig(t, config())
	show := func(key string) string {
		s, err := r.Show(natstest.Context(t), chat.Place{Account: "ann"}, approval(r, key))
		if err != nil {
			t.Fatal(err)
		}
		return s.Code
	}
	late, elsewhere, denied := show("late"), show("elsewhere"), show("denied")
	r.waits = false
	if s := r.say(t, chat.Message{Account: "ann", Text: "yes " + elsewhere}); !strings.Contains(s, "answered elsewhere") {
		t.Errorf("answered elsewhere: %q", s)
	}
	r.waits = true
	r.say(t, chat.Message{Account: "ann", Text: "no " + denied + " not today"})
	r.now = r.now.Add(time.Hour)
	if s := r.say(t, chat.Message{Account: "ann", Text: "yes " + late}); !strings.Contains(s, "expired") {
		t.Errorf("expired: %q", s)
	}
	if len(r.answers) != 1 || r.answers[0].Approved || r.answers[0].Reason != "not today" {
		t.Errorf("answers %+v, want the denial", r.answers)
	}
}

func TestInAPublicRoomNobodyApprovesByDefault(t *testing.T) {
	cfg := config()
	cfg.Approve = nil
	r := newRig(t, cfg)
	s, err := r.Show(natstest.Context(t), chat.Place{Room: "#hall"}, approval(r, "k"))
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{"ann", "zoe", ""} {
		r.say(t, chat.Message{Room: "#hall", Account: account, Name: "ann", Text: "yes " + s.Code})
	}
	if len(r.answers) != 0 {
		t.Errorf("answers %+v", r.answers)
	}
}

func TestAnAnswerIsNoOrdinaryText(t *testing.T) {
	for text, want := range map[string]bool{
		"yes a1b2c3d4": true, "No A1B2C3D4 because": true, " yes\ta1b2c3d4 ": true, "yes": false, "yes please do": false,
		"yes tomorrow": false, "yes a1b2c3d4x": false, "oh yes a1b2c3d4": false, "no a1b2c3d4\nline": true,
	} {
		if _, got := chat.ParseAnswer(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestLinesFit(t *testing.T) {
	text := "# Title\n\nSome **bold** [link](https://e.org) text\r\nQUIT :x\x00\x01\n```go\n  if a { b } \n```\n" + strings.Repeat("語", 40)
	lines := chat.Lines(chat.Plain(text), 30, 100)
	want := []string{"Title", "Some bold link (https://e.org)", "text", "QUIT :x", "  if a { b }"}
	if !slices.Equal(lines[:5], want) {
		t.Errorf("got %q, want %q", lines[:5], want)
	}
	whole := strings.Join(lines[5:], "")
	for _, l := range lines {
		if len(l) > 30 || strings.ContainsAny(l, "\r\n\x00") {
			t.Errorf("line %q has %d bytes", l, len(l))
		}
	}
	if whole != strings.Repeat("語", 40) {
		t.Errorf("characters were cut: %q", whole)
	}
	cut := chat.Lines(slices.Repeat([]string{"x"}, 50), 60, 10)
	if len(cut) != 10 || !strings.Contains(cut[9], "41 more lines") {
		t.Errorf("cut to %q", cut)
	}
}

func FuzzLines(f *testing.F) {
	f.Add("# a\n```\nb", 20)
	f.Add("語語 語\x00\r", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 4 || limit > 500 {
			t.Skip()
		}
		for _, l := range chat.Lines(chat.Plain(s), limit, 1<<20) {
			if len(l) > limit || l == "" || strings.ContainsAny(l, "\r\n\x00\x01") {
				t.Fatalf("%q of %q with limit %d", l, s, limit)
			}
		}
	})
}

func TestNamesThatCannotBeOfTheNetwork(t *testing.T) {
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	room := chat.Form{Match: digits, Want: "the id of a channel, such as 12"}
	account := chat.Form{Match: digits, Want: "the id of a user, such as 34"}
	err := chat.Config{
		Allow: []string{"7", chat.Anybody, "ann"}, Approve: []string{"bea"},
		Rooms: map[string]chat.Room{"1": {Allow: []string{"cid"}}, "#ops": {Approve: []string{"8", "dan"}}},
	}.CheckNames(room, account)
	want := `allow[2]: "ann" is not the id of a user, such as 34
approve[0]: "bea" is not the id of a user, such as 34
rooms: "#ops" is not the id of a channel, such as 12
rooms.#ops.approve[1]: "dan" is not the id of a user, such as 34
rooms.1.allow[0]: "cid" is not the id of a user, such as 34`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

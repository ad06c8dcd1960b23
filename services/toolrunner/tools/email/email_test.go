package email_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/email"
)

// store keeps artifacts in memory.
type store struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (s *store) PutArtifact(_ context.Context, name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = data
	return nil
}

func (s *store) GetArtifact(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.files[name]; ok {
		return b, nil
	}
	return nil, bus.ErrNotFound
}

// rig is the tools of an agent whose account is [mailtest.Agent].
type rig struct {
	t       *testing.T
	servers *mailtest.Servers
	store   *store
	tools   map[string]tools.Tool
	begin   func(context.Context) error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{
		t: t, servers: mailtest.Start(t), store: &store{files: map[string][]byte{}}, tools: map[string]tools.Tool{},
		begin: func(context.Context) error { return nil },
	}
	c := r.servers.Account(mailtest.Agent)
	accounts, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"agent": c}})
	if err != nil {
		t.Fatal(err)
	}
	g := email.New(accounts, r.store, t.TempDir(), natstest.Logger(t))
	t.Cleanup(g.Close)
	for _, tool := range g.Tools() {
		r.tools[tool.Spec.Name] = tool
	}
	return r
}

func (r *rig) with(name, key, args string) tools.Call {
	r.t.Helper()
	v, err := toolschema.Compile(r.tools[name].Spec)
	if err != nil {
		r.t.Fatal(err)
	}
	filled, wrong := v.Validate(json.RawMessage(args))
	if wrong != nil {
		r.t.Fatalf("%s: %q", name, wrong)
	}
	return tools.Call{
		Agent: "main", Session: "s", ID: "c", Attempt: "a", Args: filled, Store: r.store, Key: key, Begin: r.begin,
		Progress: func(string) {},
	}
}

// call calls a tool and decodes its data into out.
func (r *rig) call(name, args string, out any) tool.Result {
	r.t.Helper()
	res := r.tools[name].Run(r.t.Context(), r.with(name, "key"+name+args, args))
	if out != nil {
		if !res.Success {
			r.t.Fatalf("%s: %v", name, res.Error)
		}
		if err := json.Unmarshal(res.Data, out); err != nil {
			r.t.Fatal(err)
		}
	}
	return res
}

// arrive delivers letters to the agent, one after another, and returns when they have arrived.
func (r *rig) arrive(letters ...string) {
	r.t.Helper()
	n := len(r.servers.Letters(mailtest.Agent, ""))
	for i, l := range letters {
		r.servers.Deliver(mailtest.Alice, mailtest.Agent, l)
		r.servers.Await(mailtest.Agent, "", n+i+1)
	}
}

type list struct {
	Total  int
	Emails []struct {
		UID       uint32
		MessageID string `json:"message_id"`
		From      []string
		Subject   string
		Flags     []string
	}
}

func TestSearchAndRead(t *testing.T) {
	r := newRig(t)
	r.arrive("From: Alice <alice@example.org>\nMessage-ID: <1@x>\nSubject: =?gbk?B?1tC5+g==?=\n\nfirst needle",
		"From: bob@example.org\nMessage-ID: <2@x>\nSubject: two\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html\n\n"+
			"<p>rich <img src=\"http://127.0.0.1:1/tracker\"></p>\n--b\nContent-Type: image/png; name=p.png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n--b--",
		"From: alice@example.org\nSubject: three\n\nthird")
	var all list
	r.call("email:search", `{}`, &all)
	if all.Total != 3 || len(all.Emails) != 3 || all.Emails[0].Subject != "three" || all.Emails[2].Subject != "中国" ||
		all.Emails[2].MessageID != "1@x" || all.Emails[2].From[0] != "Alice <alice@example.org>" {
		t.Errorf("all: %+v", all)
	}
	for args, want := range map[string]int{
		`{"from":"alice"}`: 2, `{"text":"needle"}`: 1, `{"subject":"two","from":"alice"}`: 0, `{"unseen":true}`: 3,
		`{"before":"2020-01-01"}`: 0, `{"since":"2020-01-01"}`: 3, `{"subject":"中国"}`: 1, `{"to":"x\"y\\z"}`: 0,
	} {
		var l list
		if r.call("email:search", args, &l); l.Total != want {
			t.Errorf("%s: %d, want %d", args, l.Total, want)
		}
	}
	var got struct {
		Text, Subject string
		Flags         []string
		Attachments   []struct{ Name, Ref string }
	}
	res := r.call("email:read", `{"message_id":"<2@x>"}`, &got)
	if got.Text != "rich" || len(got.Attachments) != 1 || got.Attachments[0].Name != "1-p.png" || len(res.Files) != 1 ||
		string(r.store.files[got.Attachments[0].Ref]) != "\x89PNG\r\n\x1a\n" || res.Files[0].Ref != got.Attachments[0].Ref {
		t.Errorf("the letter is %+v, files %+v", got, res.Files)
	}
	r.call("email:read", fmt.Sprintf(`{"uid":%d}`, all.Emails[0].UID), &got)
	if got.Text != "third" || len(got.Flags) > 0 {
		t.Errorf("the letter is %+v", got)
	}
	var unseen list
	if r.call("email:search", `{"unseen":true}`, &unseen); unseen.Total != 3 {
		t.Error("reading has marked a letter as read")
	}
	for args, want := range map[string]string{
		`{"uid":999}`: "does not exist", `{"message_id":"none@x"}`: "no e-mail with", `{"uid":1,"folder":"Nope"}`: "the folders are",
		`{"uid":1,"account":"other"}`: "want one of agent",
	} {
		if res := r.call("email:read", args, nil); res.Success || !strings.Contains(res.Error.Message, want) {
			t.Errorf("%s: %+v, want %q", args, res.Error, want)
		}
	}
}

func TestOfALetterOf50MBTheBeginningIsRead(t *testing.T) {
	r := newRig(t)
	r.arrive("From: a@x.org\nSubject: big\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nthe text\n--b\n" +
		"Content-Type: application/zip; name=big.zip\nContent-Transfer-Encoding: base64\n\n" +
		strings.Repeat(strings.Repeat("QUFB", 19)+"\n", 52<<20/77) + "--b--")
	var got struct {
		Text  string
		Bytes int64
		Notes []string
	}
	r.call("email:read", `{"uid":1}`, &got)
	if got.Text != "the text" || got.Bytes < 50<<20 || len(got.Notes) != 2 || !strings.Contains(got.Notes[1], "big.zip") {
		t.Errorf("the letter is %+v", got)
	}
}

type changes struct {
	State   string
	New     []struct{ Subject string }
	Flags   []struct{ UID uint32 }
	Gone    []uint32
	Invalid string
}

func TestSyncReportsWhatHasChanged(t *testing.T) {
	r := newRig(t)
	letters := make([]string, 3)
	for i := range letters {
		letters[i] = fmt.Sprintf("From: a@x.org\nSubject: %d\n\nx", i+1)
	}
	r.arrive(letters...)
	var first changes
	r.call("email:sync", `{}`, &first)
	if len(first.New)+len(first.Flags)+len(first.Gone) > 0 || first.State == "" {
		t.Errorf("without a state: %+v", first)
	}
	r.servers.Change(mailtest.Agent, func(c *mailtest.Mailbox) {
		c.Flag(1, `\Flagged`)
		c.Move(2, "Sent")
	})
	r.arrive("From: a@x.org\nSubject: 4\n\nx")
	var next changes
	r.call("email:sync", fmt.Sprintf(`{"state":%q}`, first.State), &next)
	if len(next.New) != 1 || next.New[0].Subject != "4" || len(next.Flags) != 1 || next.Flags[0].UID != 1 ||
		len(next.Gone) != 1 || next.Gone[0] != 2 || next.Invalid != "" {
		t.Errorf("since then: %+v", next)
	}
	var idle changes
	r.call("email:sync", fmt.Sprintf(`{"state":%q}`, next.State), &idle)
	if len(idle.New)+len(idle.Flags)+len(idle.Gone) > 0 {
		t.Errorf("nothing has happened: %+v", idle)
	}
	for state, want := range map[string]string{"nonsense": "not one that", "eyJzIjpbWzEsNDI5NDk2NzI5NV1dfQ": "not one that"} {
		if res := r.call("email:sync", fmt.Sprintf(`{"state":%q}`, state), nil); res.Success || !strings.Contains(res.Error.Message, want) {
			t.Errorf("the state %q: %+v", state, res)
		}
	}
	r.servers.Renumber(mailtest.Agent)
	var lost changes
	r.call("email:sync", fmt.Sprintf(`{"state":%q}`, next.State), &lost)
	if !strings.Contains(lost.Invalid, "UIDVALIDITY") || lost.State == "" || len(lost.New)+len(lost.Gone) > 0 {
		t.Errorf("after UIDVALIDITY has changed: %+v", lost)
	}
}

func TestAnAnswerStaysInTheThread(t *testing.T) {
	r := newRig(t)
	r.arrive("From: alice@example.org\nMessage-ID: <m2@x>\nReferences: <m1@x>\nSubject: plans\n\nwhat do you think?")
	r.store.files["main/s/c0/a0/plot.png"] = []byte("\x89PNG\r\n\x1a\n")
	var out struct {
		MessageID string `json:"message_id"`
		Note      string
	}
	r.call("email:send", `{"to":["alice@example.org"],"text":"fine","reply_to":"m2@x","attachments":["main/s/c0/a0/plot.png"]}`, &out)
	l := letter.Parse([]byte(r.servers.Await(mailtest.Alice, "", 1)[0]), 0, letter.DefaultLimits())
	asked := letter.ThreadOf(mailtest.Agent, "m2@x", nil, []string{"m1@x"}, "")
	if l.Subject != "Re: plans" || l.MessageID != out.MessageID || strings.Join(l.References, " ") != "m1@x m2@x" ||
		strings.Join(l.InReplyTo, "") != "m2@x" || l.Thread(mailtest.Agent, "") != asked || len(l.Files) != 1 ||
		l.Files[0].Name != "plot.png" || l.Automatic == "" || out.Note != "" {
		t.Errorf("the answer is %+v", l)
	}
	for args, want := range map[string]string{
		`{"to":["alice@example.org"],"text":"x"}`:                                                       "subject is empty",
		`{"to":["alice@example.org"],"text":"x","reply_to":"none@x"}`:                                   "no e-mail with",
		`{"to":["alice@example.org\r\nBcc: eve@evil.example"],"subject":"x","text":"x"}`:                "is not an address",
		`{"to":["alice@example.org"],"subject":"x","text":"x","attachments":["main/other/c/a/secret"]}`: "not an artifact of this session",
		`{"to":["alice@example.org"],"subject":"x","text":"x","attachments":["main/s/../other/c/a/x"]}`: "not an artifact of this session",
		`{"to":["nobody@example.org"],"subject":"x","text":"x"}`:                                        "nothing was sent to anybody",
	} {
		if res := r.call("email:send", args, nil); res.Success || !strings.Contains(res.Error.Message, want) {
			t.Errorf("%s: %+v, want %q", args, res.Error, want)
		}
	}
	if n := len(r.servers.Letters(mailtest.Alice, "")); n != 1 {
		t.Errorf("alice has %d letters, want 1", n)
	}
}

func TestAProbeFindsTheLetter(t *testing.T) {
	r := newRig(t)
	r.arrive("From: alice@example.org\nMessage-ID: <m1@x>\n\nx")
	const args = `{"to":["alice@example.org"],"text":"x","subject":"s","reply_to":"m1@x"}`
	c := r.with("email:send", "thekey", args)
	if res := r.tools["email:send"].Run(t.Context(), c); !res.Success {
		t.Fatal(res.Error)
	}
	r.servers.Change(mailtest.Agent, func(c *mailtest.Mailbox) { c.Move(1, "Archive") })
	if res := r.tools["email:send"].Probe(t.Context(), c, tool.Begun{}); !res.Success {
		t.Errorf("the probe: %+v, though only the letter that was answered was moved", res.Error)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c.Key = "anotherkey"
	res := r.tools["email:send"].Probe(short, c, tool.Begun{})
	if res.Success || res.Error.Code != tool.CodeOutcomeUnknown || !strings.Contains(res.Error.Message, "neither in the inbox") {
		t.Errorf("the probe of a letter that was not sent: %+v", res)
	}
}

// The process dies, or is frozen, after its call has begun and before the letter ends.
func TestAProbeProvesThatAnAttemptDidNotGetFarEnough(t *testing.T) {
	r := newRig(t)
	const args = `{"to":["alice@example.org"],"text":"x","subject":"s"}`
	c := r.with("email:send", "thekey", args)
	probe := func(attempt string) tool.Result {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return r.tools["email:send"].Probe(ctx, c, tool.Begun{Attempt: attempt})
	}
	if got := probe(c.Attempt); got.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("an attempt on another machine: %+v", got.Error)
	}
	var closed tool.Result
	c.Begin = func(context.Context) error {
		closed = probe(c.Attempt)
		return nil // it thaws
	}
	sent := r.tools["email:send"].Run(t.Context(), c)
	if sent.Success || !strings.Contains(sent.Error.Message, "nothing was sent") || closed.Error.Code != tool.CodeNotRun {
		t.Errorf("it sent: %+v, though a probe said %+v", sent, closed.Error)
	}
	if n := len(r.servers.Letters(mailtest.Alice, "")); n != 0 {
		t.Errorf("alice has %d letters", n)
	}
}

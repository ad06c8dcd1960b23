package dispatch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/test/natstest"
)

// payloads are what each point is asked with, and what a plugin may make of it.
var payloads = map[hook.Point]struct{ data, changed string }{
	hook.OnAgentStart: {`{"instance":"i"}`, `{"instance":"i","reason":"x"}`},
	hook.BeforeSense:  {`{"text":"hi","writer":"w"}`, `{"text":"HI","writer":"w"}`},
	hook.AfterSense: {
		`{"perceptions":[{"id":"7","text":"hi"}]}`, `{"perceptions":[{"id":"7","text":"hi","drop":true}]}`,
	},
	hook.BeforePlan: {`{"plan":"p","round":1,"tools":["a","b"]}`, `{"plan":"p","round":1,"tools":["a"]}`},
	hook.AfterPlan: {
		`{"plan":"p","response":{"is_final":true,"text_content":"a","usage":{"input_tokens":1,"output_tokens":1}}}`,
		`{"plan":"p","response":{"is_final":true,"text_content":"b","usage":{"input_tokens":1,"output_tokens":1}}}`,
	},
	hook.BeforeAct: {`{"call":"c","tool":"t","args":{"n":1}}`, `{"call":"c","tool":"t","args":{"n":2}}`},
	hook.AfterAct: {
		`{"call":"c","tool":"t","args":{},"result":{"success":true,"data":1}}`,
		`{"call":"c","tool":"t","args":{},"result":{"success":true,"data":2}}`,
	},
	hook.BeforeReflect: {`{"input":"i","rounds":1}`, `{"input":"i","rounds":1,"notes":["x"]}`},
	hook.AfterReflect:  {`{"input":"i","rounds":1}`, `{"input":"i","rounds":1,"notes":["x"]}`},
	hook.OnError:       {`{"code":"c","message":"m"}`, `{"code":"c","message":"n"}`},
	hook.OnAgentStop:   {`{"instance":"i"}`, `{"instance":"i","reason":"x"}`},
}

// behaviour is how a plugin treats one request, on a separate connection.
type behaviour struct {
	name   string
	plugin subject.Plugin // that behaves so
	// does it. An empty body of the reply means continue.
	do func(t *testing.T, url string, m *nats.Msg)
	// verb is what it answers; empty: it fails. Where the verb means nothing it fails, too.
	verb   hook.Verb
	absent bool // nobody subscribes
	drops  bool // its connection ends
	late   bool
}

func replies(body func(hook.Point) string) func(*testing.T, string, *nats.Msg) {
	return func(t *testing.T, _ string, m *nats.Msg) {
		var e hook.Envelope
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Errorf("the envelope: %v", err)
		}
		if err := m.Respond([]byte(body(e.Point))); err != nil {
			t.Errorf("answering: %v", err)
		}
	}
}

func plain(body string) func(*testing.T, string, *nats.Msg) {
	return replies(func(hook.Point) string { return body })
}

// big sends n bytes as the answer, past what a client library would allow.
func big(n int) func(*testing.T, string, *nats.Msg) {
	return func(t *testing.T, at string, m *nats.Msg) {
		u, err := url.Parse(at)
		if err != nil {
			t.Error(err)
			return
		}
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(c, "CONNECT {\"verbose\":false}\r\nPUB %s %d\r\n", m.Reply, n)
		_, _ = c.Write([]byte(strings.Repeat(" ", n) + "\r\n")) // the server hangs up
	}
}

// claimed answers with n bytes as a large body is to be sent: beside the message.
func claimed(n int) func(*testing.T, string, *nats.Msg) {
	return func(t *testing.T, at string, m *nats.Msg) {
		b := natstest.Dial(t, bus.Config{URL: at})
		a, err := subject.ParseReply(m.Reply)
		if err != nil {
			t.Error(err)
			return
		}
		plugin := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		// A responder of the plugin's name answers on the reply subject of the request.
		r, err := b.Respond("relay."+string(b.Instance()), "", plugin, func(q *bus.Request) {
			if err := q.Reply([]byte(`{"verb":"continue","reason":"` + strings.Repeat("x", n) + `"}`)); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Conn().PublishRequest("relay."+string(b.Instance()), a.Subject(), nil); err != nil {
			t.Error(err)
		}
		_ = r.Drain(ctx)
	}
}

func behaviours() []behaviour {
	return []behaviour{
		{name: "continue", do: plain(`{"verb":"continue"}`), verb: hook.Continue},
		{name: "nothing", do: plain(``), verb: hook.Continue},
		{
			name: "replace",
			do:   replies(func(p hook.Point) string { return `{"verb":"replace","data":` + payloads[p].changed + `}` }),
			verb: hook.Replace,
		},
		{name: "stop", do: plain(`{"verb":"stop"}`), verb: hook.Stop},
		{name: "deny", do: plain(`{"verb":"deny","reason":"because"}`), verb: hook.DenyVerb},
		{name: "confirm", do: plain(`{"verb":"confirm","warning":{"level":"warn","message":"sure?"}}`), verb: hook.Confirm},
		{name: "answer", do: plain(`{"verb":"answer","data":42}`), verb: hook.AnswerFor},
		{name: "timeout", do: func(*testing.T, string, *nats.Msg) {}},
		{name: "no responder", absent: true},
		{name: "garbage", do: plain("\x00garbage")},
		{name: "wrong schema", do: plain(`{"verb":"replace","data":{"strange":1}}`)},
		{name: "an error", do: func(t *testing.T, _ string, m *nats.Msg) {
			r := nats.NewMsg(m.Reply)
			r.Header.Set(bus.ErrorHeader, "internal")
			r.Data = []byte(`{"code":"internal","message":"ouch","retryable":false}`)
			if err := m.RespondMsg(r); err != nil {
				t.Error(err)
			}
		}},
		{name: "10 MB on the wire", do: big(10 << 20)},
		{name: "10 MB beside the message", do: claimed(10 << 20)},
		{name: "disconnect in mid-request", drops: true},
		{name: "answers twice", do: func(t *testing.T, _ string, m *nats.Msg) {
			for _, body := range []string{`{"verb":"continue"}`, `{"verb":"deny","reason":"on second thoughts"}`} {
				if err := m.Respond([]byte(body)); err != nil {
					t.Error(err)
				}
			}
		}, verb: hook.Continue},
		{name: "answers late", late: true},
		{name: "answers as another", do: func(t *testing.T, _ string, m *nats.Msg) {
			a, err := subject.ParseReply(m.Reply)
			if err == nil {
				m.Reply = a.From("q").Subject()
				err = m.Respond([]byte(`{"verb":"answer","data":1}`))
			}
			if err != nil {
				t.Error(err)
			}
		}},
	}
}

// expected is the declared outcome of one plugin that behaves so.
func (b behaviour) expected(p hook.Point, rule hook.OnErrorRule) (verdict hook.Verb, fails bool) {
	if b.verb == "" || !p.Allows(b.verb) {
		if rule == hook.Deny && p.Deniable() {
			return hook.DenyVerb, true
		}
		return hook.Continue, true
	}
	return b.verb, false
}

// The matrix: each behaviour, in each mode, at each point, under each rule, over a
// real bus. The plugin before the one under test continues. The one after it denies
// where that is possible, which shows whether the rest is asked.
func TestMatrix(t *testing.T) {
	srv := natstest.Start(t, natstest.WithTCP())
	core := natstest.Connect(t, srv)
	natstest.EnsureStreams(t, core)
	caller, err := core.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	e := dispatch.New(dispatch.Config{Ask: caller.RequestAll, SuspendAfter: -1, Log: natstest.Logger(t)})
	others := natstest.Dial(t, bus.Config{URL: srv.ClientURL(), Name: "others"})
	for name, body := range map[string]string{"first": ``, "last": `{"verb":"deny","reason":"last"}`} {
		if _, err := others.Conn().Subscribe("hook.*."+name, func(m *nats.Msg) { _ = m.Respond([]byte(body)) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := others.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for i, b := range behaviours() {
		b.plugin = subject.Plugin(fmt.Sprint("p", i))
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			errs := map[string]bool{}
			for _, p := range hook.Points() {
				for _, mode := range []hook.Mode{hook.Chain, hook.Parallel} {
					for _, rule := range []hook.OnErrorRule{hook.Allow, hook.Deny} {
						errs[cell{b, p, mode, rule}.check(t, e, srv.ClientURL())] = true
					}
				}
			}
			t.Logf("failures: %q", slices.Sorted(maps.Keys(errs)))
		})
	}
}

type cell struct {
	behaviour
	point hook.Point
	mode  hook.Mode
	rule  hook.OnErrorRule
}

// check runs the cell; it returns what the plugin's failure is called.
func (c cell) check(t *testing.T, e *dispatch.Engine, at string) string {
	t.Helper()
	stop := c.serve(t, at)
	defer stop()
	deadline := natstest.Patience
	if c.verb == "" && !strings.Contains(c.name, "beside") {
		deadline = 30 * time.Millisecond // it will not be met
	}
	d := e.NewHookSet([]dispatch.Hooked{
		{Plugin: "first", Point: c.point, Mode: c.mode, OnError: hook.Deny, Deadline: natstest.Patience},
		{Plugin: c.plugin, Point: c.point, Mode: c.mode, OnError: c.rule, Deadline: deadline},
		{Plugin: "last", Point: c.point, Mode: c.mode, OnError: hook.Allow, Deadline: natstest.Patience},
	}, ample()).Run(hook.Envelope{Point: c.point, Agent: "a", Session: "s", Data: json.RawMessage(payloads[c.point].data)})

	verb, fails := c.expected(c.point, c.rule)
	asked := []string{"first", string(c.plugin), "last"}
	if c.mode == hook.Chain && slices.Contains([]hook.Verb{hook.DenyVerb, hook.Stop, hook.AnswerFor}, verb) {
		asked = asked[:2] // the chain ends there
	}
	var got []string
	for _, v := range d.Verdicts {
		got = append(got, string(v.Plugin))
	}
	want, reason := c.outcome(verb, len(asked) == 3)
	switch {
	case !slices.Equal(got, asked):
		t.Errorf("%v: %v were asked, want %v", c, got, asked)
	case d.Verdicts[1].Verb != verb || (d.Verdicts[1].Error != "") != fails:
		t.Errorf("%v: its verdict is %+v, want %s, failure %v", c, d.Verdicts[1], verb, fails)
	case d.Verb != want || !strings.Contains(d.Reason, reason):
		t.Errorf("%v: it came to %s %q, want %s %q", c, d.Verb, d.Reason, want, reason)
	case want == hook.Replace && string(d.Data) != payloads[c.point].changed:
		t.Errorf("%v: %s", c, d.Data)
	}
	return d.Verdicts[1].Error
}

// outcome is what the point comes to, with a plugin last that denies.
func (c cell) outcome(verb hook.Verb, last bool) (hook.Verb, string) {
	switch {
	case verb == hook.DenyVerb && c.verb == hook.DenyVerb:
		return hook.DenyVerb, "because"
	case verb == hook.DenyVerb:
		return hook.DenyVerb, "the hook " + string(c.plugin) + " failed"
	case last && c.point.Deniable():
		return hook.DenyVerb, "last"
	case verb == hook.Stop:
		return hook.Continue, ""
	}
	return verb, ""
}

func (c cell) String() string {
	return fmt.Sprintf("%s, %s, %s, on_error %s", c.name, c.point, c.mode, c.rule)
}

// serve makes the plugin p behave so, and returns what ends it.
func (c cell) serve(t *testing.T, at string) (stop func()) {
	t.Helper()
	if c.absent {
		return func() {}
	}
	nc, err := nats.Connect(at, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan struct{}, 16)
	done := func() { handled <- struct{}{} }
	sub, err := nc.QueueSubscribe(subject.Hook(string(c.point), c.plugin), string(c.plugin), func(m *nats.Msg) {
		switch {
		case c.drops:
			nc.Close()
			done()
		case c.late:
			time.AfterFunc(40*time.Millisecond, func() {
				defer done()
				_ = m.Respond([]byte(`{"verb":"answer","data":"late"}`))
			})
		default:
			defer done()
			c.do(t, at, m)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() {
		select {
		case <-handled: // it is asked once, and whatever it does belongs to this cell
		case <-time.After(natstest.Patience):
			t.Errorf("%v: it was not asked", c)
		}
		// The server must know before the next plugin of the name comes, or it may
		// still give this one its question.
		_ = sub.Unsubscribe()
		_ = nc.Flush()
		nc.Close()
		if c.drops {
			nobody(t, at, sub.Subject)
		}
	}
}

// nobody waits until the server knows that nobody listens on a subject any more.
func nobody(t *testing.T, at, subj string) {
	t.Helper()
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	natstest.Eventually(t, "the server to know that nobody is there", func() bool {
		_, err := nc.Request(subj, nil, 100*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	})
}

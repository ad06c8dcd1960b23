package irc_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/natstest"
)

// peer is the server's end of one connection of the gateway.
type peer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// fake is a server that does what a test says, as ngircd has no accounts, tags or faults.
type fake struct {
	t *testing.T
	l net.Listener
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &fake{t, l}
}

func (f *fake) config() irc.Config {
	all := false
	return irc.Config{
		Config: chat.Config{Rooms: map[string]chat.Room{"#ops": {Mention: &all}}, Direct: true, Allow: []string{"Ann"}},
		Server: f.l.Addr().String(), Insecure: true, Pace: time.Millisecond, Ping: time.Second, Watch: new(false),
	}
}

func (f *fake) accept() *peer {
	f.t.Helper()
	_ = f.l.(*net.TCPListener).SetDeadline(time.Now().Add(natstest.Patience))
	c, err := f.l.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return &peer{f.t, c, bufio.NewReader(c)}
}

// expect reads lines until one begins with a text, and returns it. PINGs to keep the connection are
// answered.
func (p *peer) expect(prefix string) string {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(natstest.Patience))
	for {
		line, err := p.in.ReadString('\n')
		if err != nil {
			p.t.Fatalf("waiting for %q: %v", prefix, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, prefix) {
			return line
		}
		if token, found := strings.CutPrefix(line, "PING :"); found {
			p.say(":s PONG s :" + token)
		}
	}
}

func (p *peer) say(lines ...string) {
	for _, l := range lines {
		_, _ = p.Write([]byte(l + "\r\n"))
	}
}

// welcome accepts the gateway with capabilities, and into its channel.
func (p *peer) welcome(caps string) {
	p.t.Helper()
	p.expect("CAP LS")
	p.say(":s CAP * LS * :x y", ":s CAP * LS :"+caps)
	if caps != "" {
		p.say(":s CAP * ACK :" + strings.TrimPrefix(p.expect("CAP REQ "), "CAP REQ :"))
	}
	p.expect("CAP END")
	p.say(":s 001 skandha :hello")
	p.expect("JOIN #ops")
	p.say(":skandha!~s@h JOIN #ops")
}

func TestAnAccountIsWhatTheServerSays(t *testing.T) {
	f, desk := newFake(t), &chattest.Desk{}
	g := gateway(t, f.config(), chattest.Bus(t), desk)
	p := f.accept()
	p.welcome("account-tag message-tags server-time sasl=PLAIN")
	now := time.Now().UTC().Format(time.RFC3339)
	p.say(
		"@account=eve;msgid=1 :ann!ann@h PRIVMSG #ops :by name",
		":ann!ann@h PRIVMSG #ops :without account",
		"@account=*;msgid=2 :ann!ann@h PRIVMSG #ops :not logged in",
		"@account=ann;time=2020-01-01T00:00:00.000Z :x!x@h PRIVMSG #ops :replayed by a bouncer",
		"@account=ann;msgid=a\\:b;time="+now+" :x!x@h PRIVMSG #ops :yes",
		"@account=ann;msgid=a\\:b;time="+now+" :x!x@h PRIVMSG #ops :yes",
		"@account=ANN;msgid=3 :x!x@h PRIVMSG skandha :directly",
		"@account=ann :skandha!~s@h PRIVMSG #ops :an echo",
		strings.Repeat("x", 40_000), "", " ", ":", "@ :x", ":x", "PRIVMSG", ":ann PRIVMSG #ops", "@account=ann;msgid=9 :x!x@h PRIVMSG #ops :\x03\x02",
		"@account=ann;msgid=4 :x!x@h PRIVMSG #ops :\xff latin",
	)
	in := desk.Await(t, 3)
	want := []struct{ id, from, text, to string }{
		{"a;b", "ann", "yes", "#ops"}, {"3", "ann", "directly", "x!ann"}, {"4", "ann", "\uFFFD latin", "#ops"},
	}
	for i, w := range want {
		if got := in[i]; got.ID != w.id || got.From != w.from || got.Text != w.text || got.ReplyTo != w.to || got.Origin != "" {
			t.Errorf("input %d is %+v, want %+v", i, got, w)
		}
	}
	if len(desk.Inputs()) != 3 {
		t.Errorf("inputs %+v", desk.Inputs())
	}

	// The nickname belongs to another person now.
	done := make(chan tool.Result, 1)
	go func() { done <- g.Deliver(natstest.Context(t), chattest.Answer(in[1], "secret")) }()
	p.expect("WHOIS x")
	p.say(":s 311 skandha x x h * :X", ":s 330 skandha x eve :is logged in as", ":s 318 skandha x :End")
	if r := <-done; r.Success || !strings.Contains(r.Error.Message, "not online") {
		t.Errorf("delivered to another person: %+v", r)
	}
}

func TestWithoutAccountsNobodyMayTalk(t *testing.T) {
	f, desk := newFake(t), &chattest.Desk{}
	gateway(t, f.config(), chattest.Bus(t), desk)
	p := f.accept()
	p.welcome("")
	p.say("@account=ann :ann!ann@h PRIVMSG skandha :a tag that the server has not announced")
	p.expect("NOTICE ann :Your account is unknown here")
	if in := desk.Inputs(); len(in) != 0 {
		t.Errorf("inputs %+v", in)
	}
}

func TestSASL(t *testing.T) {
	f := newFake(t)
	cfg := f.config()
	t.Setenv("SKANDHA_TEST_ACCOUNT", strings.Repeat("p", 300))
	cfg.Account, cfg.AccountPassword, cfg.Keys = "bot", "env:SKANDHA_TEST_ACCOUNT", map[string]string{"#ops": "env:SKANDHA_TEST_ACCOUNT"}
	gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
	p := f.accept()
	p.expect("CAP LS")
	p.say(":s CAP * LS :multi-prefix")
	p.expect("CAP END")
	p.say(":s 001 skandha :hello") // it does not go on without its account
	p = f.accept()
	p.expect("CAP LS")
	p.say(":s CAP * LS :sasl")
	p.say(":s CAP * ACK :" + strings.TrimPrefix(p.expect("CAP REQ "), "CAP REQ :"))
	p.expect("AUTHENTICATE PLAIN")
	p.say("AUTHENTICATE +")
	first, second := p.expect("AUTHENTICATE "), p.expect("AUTHENTICATE ")
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(first, "AUTHENTICATE ") + strings.TrimPrefix(second, "AUTHENTICATE "))
	if err != nil || string(b) != "\x00bot\x00"+strings.Repeat("p", 300) {
		t.Errorf("the gateway authenticates with %q, %v", b, err)
	}
	p.say(":s 903 skandha :ok")
	p.expect("CAP END")
	p.say(":s 001 skandha :hello")
	if line := p.expect("JOIN "); line != "JOIN #ops "+strings.Repeat("p", 300) {
		t.Errorf("the gateway joins by %q", line)
	}
}

func TestAServerThatFails(t *testing.T) {
	f := newFake(t)
	g := gateway(t, f.config(), chattest.Bus(t), &chattest.Desk{})
	deliver := func(m contract.Outgoing) <-chan tool.Result {
		done := make(chan tool.Result, 1)
		go func() { done <- g.Deliver(natstest.Context(t), m) }()
		return done
	}
	unknown := func(what string, r tool.Result) {
		t.Helper()
		if r.Success || r.Error.Code != tool.CodeOutcomeUnknown {
			t.Errorf("%s: %+v, want outcome_unknown", what, r)
		}
	}
	p := f.accept()
	p.welcome("")
	m := chattest.To("#ops", "lost")
	done := deliver(m)
	p.expect("PRIVMSG #ops :lost")
	_ = p.Close()
	unknown("a lost connection", <-done)
	unknown("its probe", g.Probe(natstest.Context(t), m, tool.Begun{}))

	p = f.accept() // it ends the connection with an error
	p.expect("NICK")
	p.say("ERROR :Closing link")
	p = f.accept() // it half-closes
	_ = p.Conn.(*net.TCPConn).CloseWrite()
	p = f.accept() // it connects, and is silent: no PONG comes
	p.welcome("")
	p.expect("PING :keep")

	p = f.accept()
	p.welcome("")
	late := chattest.To("#ops", "late")
	ctx, cancel := context.WithCancel(natstest.Context(t))
	result := make(chan tool.Result, 1)
	go func() { result <- g.Deliver(ctx, late) }()
	p.expect("PRIVMSG #ops :late")
	ping := p.expect("PING :")
	cancel()
	unknown("no confirmation in time", <-result)
	p.say(fmt.Sprintf(":s PONG s :%s", strings.TrimPrefix(ping, "PING :")))
	if r := g.Probe(natstest.Context(t), late, tool.Begun{}); !r.Success {
		t.Errorf("the confirmation came, and the probe says %+v", r)
	}
	unknown("a probe in another process", g.Probe(natstest.Context(t), chattest.To("#ops", "of another"), tool.Begun{}))
}

func FuzzALine(f *testing.F) {
	for _, s := range []string{"@a=b;c :n!u@h PRIVMSG #x :y", ":s 001 n", "PING", "@ ", ": :", "\x03,1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		text, ok := irc.Parsed(line)
		if ok && strings.ContainsAny(text, "\x02\x03\x1f") {
			t.Errorf("%q is read as %q", line, text)
		}
	})
}

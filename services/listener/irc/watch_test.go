package irc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/natstest"
)

// quit is how others see that the server has ended the sender's connection.
const quit = "skandha!~skandha@127.0.0.1 QUIT"

// road is between a gateway and its server. It can end the two connections at any line.
type road struct {
	t      *testing.T
	server string
	l      net.Listener
	// each line that the gateway's sender sends; it returns whether the line gets through
	line func(r *road, line string) bool

	mu    sync.Mutex
	pairs map[string][2]net.Conn // the gateway's end and the server's, by nickname
}

// between runs a road until the test ends.
func between(t *testing.T, s *irctest.Server, line func(r *road, line string) bool) *road {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(natstest.Context(t), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{t: t, server: s.Addr, l: l, line: line, pairs: map[string][2]net.Conn{}}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.carry(c)
		}
	}()
	return r
}

func (r *road) carry(near net.Conn) {
	far, err := new(net.Dialer).DialContext(context.WithoutCancel(r.t.Context()), "tcp", r.server)
	if err != nil {
		_ = near.Close()
		return
	}
	go func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	defer func() { _ = far.Close() }()
	nick := ""
	in := bufio.NewReader(near)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			r.mu.Lock()
			held := r.pairs[nick][0] == nil && nick != ""
			r.mu.Unlock()
			if held { // the server does not learn of it
				<-r.t.Context().Done()
			}
			return
		}
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "NICK "); found {
			nick = n
			r.mu.Lock()
			r.pairs[nick] = [2]net.Conn{near, far}
			r.mu.Unlock()
		}
		if nick != "skandha" || r.line(r, strings.TrimSpace(line)) {
			_, _ = io.WriteString(far, line)
		}
	}
}

// cut ends a connection for both.
func (r *road) cut(nick string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.pairs[nick][0].Close()
	_ = r.pairs[nick][1].Close()
}

// hold ends a connection for the gateway alone.
func (r *road) hold(nick string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pair := r.pairs[nick]
	r.pairs[nick] = [2]net.Conn{}
	_ = pair[0].Close()
	return func() { _ = pair[1].Close() }
}

// watched is a gateway whose watcher and sender are in #ops, and which has delivered a message.
func watched(t *testing.T, s *irctest.Server, line func(r *road, line string) bool) (
	deliver func(text string) (contract.Outgoing, tool.Result), probe func(contract.Outgoing) tool.Result,
) {
	t.Helper()
	cfg := config(s)
	cfg.Server = between(t, s, line).l.Addr().String()
	g := gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
	looker := s.Dial(t, "looker")
	looker.Join("#ops", "skandha")
	looker.Join("#ops", "skandha_")
	deliver = func(text string) (contract.Outgoing, tool.Result) {
		ctx, cancel := context.WithTimeout(natstest.Context(t), 2*time.Second)
		defer cancel()
		m := chattest.To("#ops", text)
		return m, g.Deliver(ctx, m)
	}
	if _, r := deliver("first"); !r.Success {
		t.Fatalf("the first message: %+v", r.Error)
	}
	return deliver, func(m contract.Outgoing) tool.Result { return g.Probe(natstest.Context(t), m, tool.Begun{}) }
}

// What became of the lines of a lost connection is known if the watcher has seen its end.
func TestTheWatcherKnowsWhatArrived(t *testing.T) {
	release := make(chan func(), 1)
	for name, c := range map[string]struct {
		line func(r *road, line string) bool // after the first message
		text string
		want tool.Code // empty: success
		seen int       // by others
		then tool.Code // after the server has noticed; "-": it has at once
	}{
		"the line has arrived": {func(r *road, line string) bool {
			if strings.HasPrefix(line, "PING") {
				r.cut("skandha")
			}
			return true
		}, "one", "", 1, "-"},
		"the line was lost": {func(r *road, line string) bool {
			if strings.HasPrefix(line, "PRIVMSG") {
				r.cut("skandha")
			}
			return false
		}, "one", tool.CodeNotRun, 0, "-"},
		"the same text as before was lost": {func(r *road, line string) bool {
			if strings.HasPrefix(line, "PRIVMSG") {
				r.cut("skandha")
			}
			return false
		}, "first", tool.CodeNotRun, 1, "-"},
		"one of two lines was lost": {func(r *road, line string) bool {
			if strings.HasSuffix(line, ":two") {
				r.cut("skandha")
				return false
			}
			return true
		}, "one\ntwo", tool.CodeOutcomeUnknown, 1, "-"},
		"the watcher is cut off before": {func(r *road, line string) bool {
			if strings.HasPrefix(line, "PRIVMSG") {
				r.cut("skandha_")
				r.cut("skandha")
			}
			return false
		}, "one", tool.CodeOutcomeUnknown, 0, "-"},
		"the server does not notice": {func(r *road, line string) bool {
			if strings.HasPrefix(line, "PRIVMSG") {
				release <- r.hold("skandha")
			}
			return false
		}, "one", tool.CodeOutcomeUnknown, 0, tool.CodeNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			s := irctest.Start(t)
			ann := s.Dial(t, "ann")
			ann.Join("#ops", "")
			var ready, sends atomic.Bool // the sender's lines from the first one of the message on
			deliver, probe := watched(t, s, func(r *road, line string) bool {
				if ready.Load() && strings.HasPrefix(line, "PRIVMSG") {
					sends.Store(true)
				}
				return !sends.Load() || line == "PING :keep" || c.line(r, line)
			})
			ready.Store(true)
			m, r := deliver(c.text)
			got := tool.Code("")
			if !r.Success {
				got = r.Error.Code
			}
			if got != c.want {
				t.Errorf("the result is %+v, want %q", r, c.want)
			}
			if c.then != "-" {
				(<-release)()
				if r := probe(m); r.Success || r.Error.Code != c.then {
					t.Errorf("then the probe says %+v, want %s", r, c.then)
				}
			}
			natstest.Eventually(t, "the end of the connection", func() bool { return ann.Saw(quit) })
			if n := ann.Count("PRIVMSG #ops :" + strings.Split(c.text, "\n")[0]); n != c.seen {
				t.Errorf("it was seen %d times, want %d", n, c.seen)
			}
		})
	}
}

// TestConnectionsKilled counts, from outside, what became of messages while an operator of the
// server ends the gateway's connection.
func TestConnectionsKilled(t *testing.T) {
	s := irctest.Start(t)
	op := s.Dial(t, "op")
	op.Send("OPER op op")
	op.Join("#ops", "")
	const rounds = 4
	results := map[string]tool.Result{}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			deliver, probe := watched(t, s, func(*road, string) bool { return true })
			before := op.Count(quit)
			for i := 0; op.Count(quit) == before; i++ {
				if i == 5+3*round {
					go op.Send("KILL skandha :round")
				}
				text := fmt.Sprintf("message %d.%d.", round, i)
				m, r := deliver(text)
				if !r.Success && r.Error.Code == tool.CodeOutcomeUnknown {
					r = probe(m)
				}
				results[text] = r
			}
		})
	}
	lost := 0
	for text, r := range results {
		switch n := op.Count("PRIVMSG #ops :" + text); {
		case r.Success && n != 1, !r.Success && n != 0:
			t.Errorf("%q was seen %d times, and the result is %+v", text, n, r)
		case !r.Success && r.Error.Code == tool.CodeOutcomeUnknown:
			t.Errorf("%q is unknown: %+v", text, r.Error)
		case !r.Success:
			lost++
		}
	}
	t.Logf("%d messages, %d kills, %d lost for certain", len(results), rounds, lost)
}

package irc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/natstest"
)

// The variables that turn the test binary into a gateway.
const (
	envServer, envBus = "SKANDHA_IRC_SERVER", "SKANDHA_IRC_BUS"
	envFrom, envState = "SKANDHA_IRC_FROM", "SKANDHA_IRC_STATE"
)

func init() {
	if os.Getenv(envServer) != "" {
		deliverForever()
	}
}

// numbered is the n-th message, and its key among the effects.
func numbered(n int) (m contract.Outgoing, key string) {
	m = chattest.To("#ops", fmt.Sprintf("number %d.", n))
	m.Attempt = fmt.Sprintf("attempt-%d", n)
	return m, effect.Key(m.Key, "call")
}

// deliverForever delivers numbered messages as the listener service does, and says on standard
// output how far each one got.
func deliverForever() {
	ctx := context.Background()
	j, err := journal.Connect(ctx, bus.Config{URL: os.Getenv(envBus)})
	if err != nil {
		panic(err)
	}
	cfg := config(&irctest.Server{Addr: os.Getenv(envServer)})
	g, err := irc.New("net", cfg, chat.Deps{Bus: j, StateDir: os.Getenv(envState)})
	if err != nil {
		panic(err)
	}
	if err := g.OnStart(ctx, &chattest.Desk{}); err != nil {
		panic(err)
	}
	marks, n := effect.New(j), 0
	_, _ = fmt.Sscan(os.Getenv(envFrom), &n)
	for ; ; n++ {
		m, key := numbered(n)
		fmt.Println("next", n)
		r := marks.Run(ctx, key, m.Attempt, func(begin func(context.Context) error) tool.Result {
			m.Begin = begin
			return g.Deliver(ctx, m)
		})
		if r.Success {
			fmt.Println("delivered", n)
		}
	}
}

// killed runs a gateway from the message next on, kills it a while after its k-th line, and returns
// the message after the last one.
func killed(t *testing.T, s *irctest.Server, busURL, state string, next, k int, delivered map[int]bool) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envServer+"="+s.Addr, envBus+"="+busURL, envState+"="+state,
		fmt.Sprintf("%s=%d", envFrom, next))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		what, number := "", 0
		if _, err := fmt.Sscan(lines.Text(), &what, &number); err != nil {
			continue
		}
		switch what {
		case "next":
			next = number + 1
		case "delivered":
			delivered[number] = true
		}
		if n == 10+k%7 {
			time.AfterFunc(time.Duration(k)*211*time.Microsecond%(5*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	return next
}

// TestGatewayKilled counts, from outside, what became of messages while the gateway is killed, and
// what a probe by the next one finds out.
func TestGatewayKilled(t *testing.T) {
	s, ctx, state := irctest.Start(t), natstest.Context(t), t.TempDir()
	nats := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, nats)
	natstest.EnsureStreams(t, b)
	ann := s.Dial(t, "ann")
	ann.Join("#ops", "")
	delivered, next := map[int]bool{}, 0
	const kills = 5
	for k := range kills {
		next = killed(t, s, nats.ClientURL(), state, next, k, delivered)
		natstest.Eventually(t, "both of its connections to end", func() bool { return ann.Count(" QUIT ") >= 2*(k+1) })
	}
	seen := map[string]int{}
	for _, l := range ann.Lines() {
		seen[l.Text]++
	}
	g, err := irc.New("net", config(s), chat.Deps{Bus: b, Logger: natstest.Logger(t), StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	marks, unknown, unresolved := effect.New(b), 0, 0
	for n := range next {
		m, key := numbered(n)
		r := marks.Probe(ctx, key, func(began effect.Record) tool.Result {
			unknown++
			return g.Probe(ctx, m, tool.Begun{At: began.At, Attempt: began.Attempt})
		})
		switch times := seen[m.Text]; {
		case times > 1, delivered[n] && times != 1, r.Success && times != 1:
			t.Errorf("%q was seen %d times; delivered %v, probe %+v", m.Text, times, delivered[n], r)
		case !r.Success && r.Error.Code == tool.CodeNotRun && times != 0:
			t.Errorf("%q was seen %d times, and the probe says %+v", m.Text, times, r.Error)
		case !r.Success && r.Error.Code != tool.CodeNotRun:
			unresolved++
		}
	}
	if unknown > kills || len(delivered) < kills {
		t.Errorf("%d are unknown after %d kills, %d delivered", unknown, kills, len(delivered))
	}
	t.Logf("%d messages, %d kills, %d unknown, of which %d stay so", next, kills, unknown, unresolved)
}

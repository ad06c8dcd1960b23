package irc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/natstest"
)

// The variables that turn the test binary into a gateway.
const envServer, envBus, envFrom = "SKANDHA_IRC_SERVER", "SKANDHA_IRC_BUS", "SKANDHA_IRC_FROM"

func init() {
	if os.Getenv(envServer) != "" {
		deliverForever()
	}
}

// deliverForever delivers numbered messages, and says on standard output how far each one got.
func deliverForever() {
	ctx := context.Background()
	j, err := journal.Connect(ctx, bus.Config{URL: os.Getenv(envBus)})
	if err != nil {
		panic(err)
	}
	g, err := irc.New("net", config(&irctest.Server{Addr: os.Getenv(envServer)}), chat.Deps{Bus: j})
	if err != nil {
		panic(err)
	}
	if err := g.OnStart(ctx, &chattest.Desk{}); err != nil {
		panic(err)
	}
	n := 0
	_, _ = fmt.Sscan(os.Getenv(envFrom), &n)
	for ; ; n++ {
		m := chattest.To("#ops", fmt.Sprintf("number %d.", n))
		m.Begin = func(context.Context) error { fmt.Println("begun", n); return nil }
		if g.Deliver(ctx, m).Success {
			fmt.Println("delivered", n)
		}
	}
}

// TestGatewayKilled counts, from outside, what became of messages while the gateway is killed.
func TestGatewayKilled(t *testing.T) {
	s := irctest.Start(t)
	nats := natstest.Start(t, natstest.WithTCP())
	natstest.EnsureStreams(t, natstest.Connect(t, nats))
	ann := s.Dial(t, "ann")
	ann.Join("#ops", "")
	begun, delivered, next := map[int]bool{}, map[int]bool{}, 0
	const kills = 5
	for k := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envServer+"="+s.Addr, envBus+"="+nats.ClientURL(), fmt.Sprintf("%s=%d", envFrom, next))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, kill := bufio.NewScanner(out), 10+7*k
		for n := 0; lines.Scan(); n++ {
			what, number := "", 0
			if _, err := fmt.Sscan(lines.Text(), &what, &number); err != nil {
				continue
			}
			switch what {
			case "begun":
				begun[number], next = true, number+1
			case "delivered":
				delivered[number] = true
			}
			if n == kill {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		natstest.Eventually(t, "the gateway to be gone", func() bool { return ann.Count(" QUIT ") > k })
	}
	seen := map[string]int{}
	for _, l := range ann.Lines() {
		seen[l.Text]++
	}
	for n := range next {
		switch times := seen[fmt.Sprintf("number %d.", n)]; {
		case times > 1, delivered[n] && times != 1, !begun[n] && times != 0:
			t.Errorf("number %d was seen %d times; begun %v, delivered %v", n, times, begun[n], delivered[n])
		}
	}
	if unknown := len(begun) - len(delivered); unknown > kills {
		t.Errorf("%d of %d are unknown after %d kills", unknown, len(begun), kills)
	}
	if len(seen) < len(delivered) || len(delivered) < kills {
		t.Errorf("%d delivered, %d seen", len(delivered), len(seen))
	}
	t.Logf("%d messages, %d kills, %d unknown", len(begun), kills, len(begun)-len(delivered))
}

package xmpp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/xmpp"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/xmpptest"
)

func TestTLS(t *testing.T) {
	cert, key := chattest.Certificate(t, xmpptest.Domain)
	s := xmpptest.Start(t, xmpptest.Options{Cert: cert, Key: key}, "agent")
	cfg := config(t, s)
	cfg.Insecure, cfg.CA = false, cert
	g := gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
	if r := g.Deliver(natstest.Context(t), chattest.To(ops, "over TLS")); !r.Success {
		t.Errorf("delivering: %+v", r.Error)
	}
	other, _ := chattest.Certificate(t, xmpptest.Domain)
	cfg.CA = other
	stranger := gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
	ctx, cancel := context.WithTimeout(natstest.Context(t), time.Second)
	defer cancel()
	if r := stranger.Deliver(ctx, chattest.To(ops, "x")); r.Success {
		t.Error("a server with an unknown certificate was accepted")
	}
	cfg.CA = filepath.Join(t.TempDir(), "none.pem")
	if err := cfg.CheckSecrets(); err == nil || !strings.Contains(err.Error(), "ca: ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestAServerThatIsNone: the gateway connects again whatever the server sends.
func TestAServerThatIsNone(t *testing.T) {
	const begin = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' from='localhost' version='1.0'>"
	bus := chattest.Bus(t)
	for what, answer := range map[string]string{
		"another protocol": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"nothing":          "",
		"a document type":  "<!DOCTYPE x [<!ENTITY a \"b\">]>",
		"no mechanism":     begin + "<stream:features/>",
		"a stream error":   begin + "<stream:error><host-unknown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
		"endless features": begin + "<stream:features>" + strings.Repeat("<x>", 200_000),
		"a wrong proof": begin + "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>SCRAM-SHA-1</mechanism>" +
			"</mechanisms></stream:features><success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>dj1mb3JnZWQ=</success>",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		gateway(t, config(t, &xmpptest.Server{Addr: l.Addr().String()}), bus, &chattest.Desk{})
		for range 2 {
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(natstest.Patience))
			c, err := l.Accept()
			if err != nil {
				t.Fatalf("after %s: %v", what, err)
			}
			_ = c.SetDeadline(time.Now().Add(natstest.Patience))
			_, _ = c.Write([]byte(answer))
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // until the gateway hangs up
			_ = c.Close()
		}
	}
}

// The variables that turn the test binary into a gateway.
const envServer, envBus, envFrom = "SKANDHA_XMPP_SERVER", "SKANDHA_XMPP_BUS", "SKANDHA_XMPP_FROM"

func init() {
	if os.Getenv(envServer) != "" {
		deliverForever()
	}
}

// childConfig is the configuration of the gateway in another process, and of the one that probes.
func childConfig(addr string) xmpp.Config {
	return xmpp.Config{
		Config: chat.Config{Rooms: map[string]chat.Room{ops: {}}, Allow: []string{"ann@localhost"}}, JID: "agent@localhost",
		Password: xmpptest.Password, Server: addr, Insecure: true,
	}
}

// deliverForever delivers numbered messages, and says on standard output how far each one got.
func deliverForever() {
	ctx := context.Background()
	j, err := journal.Connect(ctx, bus.Config{URL: os.Getenv(envBus)})
	if err != nil {
		panic(err)
	}
	g, err := xmpp.New("net", childConfig(os.Getenv(envServer)), chat.Deps{Bus: j})
	if err != nil {
		panic(err)
	}
	if err := g.OnStart(ctx, &chattest.Desk{}); err != nil {
		panic(err)
	}
	n := 0
	_, _ = fmt.Sscan(os.Getenv(envFrom), &n)
	for ; ; n++ {
		m := chattest.To(ops, fmt.Sprintf("number %d.", n))
		m.Begin = func(context.Context) error { fmt.Println("begun", n); return nil }
		if g.Deliver(ctx, m).Success {
			fmt.Println("delivered", n)
		}
	}
}

// TestGatewayKilled counts, from outside, what became of messages while the gateway is killed. The
// next process resolves what is unknown by probing, and sends what was not sent.
func TestGatewayKilled(t *testing.T) {
	s := xmpptest.Start(t, xmpptest.Options{}, "agent", "ann")
	nats := natstest.Start(t, natstest.WithTCP())
	natstest.EnsureStreams(t, natstest.Connect(t, nats))
	results := map[string]tool.Result{}
	next := 0
	const kills = 5
	var probes []string
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
		lines, kill, open := bufio.NewScanner(out), 10+6*k, ""
		for n := 0; lines.Scan(); n++ {
			what, number := "", 0
			if _, err := fmt.Sscan(lines.Text(), &what, &number); err != nil {
				continue
			}
			text := fmt.Sprintf("number %d.", number)
			switch what {
			case "begun":
				open, next = text, number+1
			case "delivered":
				open, results[text] = "", tool.OK(nil)
			}
			if n == kill {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if open != "" {
			probes = append(probes, open)
			g := gateway(t, childConfig(s.Addr), chattest.Bus(t), &chattest.Desk{})
			results[open] = g.Probe(natstest.Context(t), chattest.To(ops, open), tool.Begun{At: time.Now()})
			if err := g.OnStop(natstest.Context(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if unknown := counted(t, archive(t, s), results); unknown > 0 || len(results) != next {
		t.Errorf("%d results of %d messages, %d unknown after probing", len(results), next, unknown)
	}
	t.Logf("%d messages, %d kills, %d probed", next, kills, len(probes))
}

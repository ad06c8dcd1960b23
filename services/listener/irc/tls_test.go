package irc_test

import (
	"net"
	"strings"
	"testing"

	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/irc"
	"skandha.dev/services/test/chattest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/natstest"
)

func TestConnectionsAreEncrypted(t *testing.T) {
	cert, key := chattest.Certificate(t, "localhost")
	s := irctest.StartTLS(t, cert, key)
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(s)
	cfg.Insecure, cfg.CA, cfg.Server = false, cert, net.JoinHostPort("localhost", port)
	g := gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
	if r := g.Deliver(natstest.Context(t), chattest.To("#ops", "encrypted")); !r.Success {
		t.Errorf("over TLS: %+v", r.Error)
	}
	other, _ := chattest.Certificate(t, "localhost")
	for want, change := range map[string]func(*irc.Config){
		"set ca to the file of the authority":             func(c *irc.Config) { c.CA = other },
		"set server to a name that is in the certificate": func(c *irc.Config) { c.Server = s.Addr },
	} {
		cfg := cfg
		t.Run(want, func(t *testing.T) {
			change(&cfg)
			g := gateway(t, cfg, chattest.Bus(t), &chattest.Desk{})
			natstest.Eventually(t, "the refusal", func() bool {
				h := g.Health()
				return h.State == contract.StateDown && strings.Contains(h.Reason, want)
			})
		})
	}
}

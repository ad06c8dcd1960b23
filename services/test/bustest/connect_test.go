package bustest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

func TestServicesMayStartBeforeTheBus(t *testing.T) {
	port := natstest.FreePort(t)
	connected := make(chan error, 1)
	ctx, log := natstest.Context(t), natstest.Logger(t)
	go func() {
		b, err := journal.Connect(ctx, bus.Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", port), Name: "early", Logger: log})
		if err == nil {
			b.Close()
		}
		connected <- err
	}()
	natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.Addr = fmt.Sprintf("127.0.0.1:%d", port) }))
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := journal.Connect(ctx,
		bus.Config{URL: fmt.Sprintf("nats://user:hidden@127.0.0.1:%d", natstest.FreePort(t)), Logger: natstest.Logger(t)})
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v, want the deadline and no password", err)
	}
}

func TestWrongTokenIsAnErrorAtOnce(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP(), natstest.WithConfig(func(c *natsserver.Config) { c.Token = "right" }))
	for _, c := range []bus.Config{{URL: s.ClientURL(), Token: "wrong"}, {URL: s.ClientURL()}} {
		c.Logger = natstest.Logger(t)
		if b, err := journal.Connect(natstest.Context(t), c); !errors.Is(err, nats.ErrAuthorization) ||
			strings.Contains(err.Error(), "wrong") {
			t.Errorf("%v, %v, want an authorization error without the token", b, err)
		}
	}
	natstest.Connect(t, s)
	natstest.Dial(t, bus.Config{URL: s.ClientURL(), Token: "right"})
}

func TestConnectionComesBack(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	for range 3 {
		p.Kill()
		natstest.Eventually(t, "the loss to be seen", func() bool { return !b.Connected() })
		p.Restart()
		natstest.Eventually(t, "the connection", b.Connected)
		cause(t, b, ref("one"), "", "x")
	}
	if n := len(messages(t, b, ref("one"))); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, c := range map[string]bus.Config{
		"bus.url":      {},
		"bus.name":     {URL: "x", Name: "a.b"},
		"bus.instance": {URL: "x", Instance: "a b"},
		"only one of":  {URL: "x", Token: "t", User: "u"},
		"bus.user":     {URL: "x", Password: "p"},
		"bus.tls.key":  {URL: "x", TLS: bus.TLS{Cert: "c"}},
	} {
		if _, err := journal.Connect(natstest.Context(t), c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
	if _, err := journal.Connect(natstest.Context(t), bus.Config{URL: "x", NKeySeedFile: "/nowhere"}); err == nil ||
		!strings.Contains(err.Error(), "nkey_seed_file") {
		t.Errorf("%v", err)
	}
}

func TestInstancesAreNewEachTime(t *testing.T) {
	s := natstest.Start(t)
	a, b := natstest.Dial(t, bus.Config{InProcess: s, Name: "core"}), natstest.Dial(t,
		bus.Config{InProcess: s, Name: "core"})
	if a.Instance() == b.Instance() || !strings.HasPrefix(string(a.Instance()), "core-") || !subject.Valid(a.Instance()) {
		t.Errorf("%s and %s", a.Instance(), b.Instance())
	}
	if i := bus.NewInstance(strings.Repeat("x", 100)); !subject.Valid(i) {
		t.Errorf("%s is no id", i)
	}
	if c := natstest.Dial(t, bus.Config{InProcess: s, Instance: "given"}); c.Instance() != "given" {
		t.Errorf("%s", c.Instance())
	}
}

func TestPublishingWithoutAConnectionFailsAtOnce(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	s.Shutdown()
	natstest.Eventually(t, "the loss to be seen", func() bool { return !b.Conn().IsConnected() })
	err := b.Publish(natstest.Context(t), "announce.runner.r1", nil, []byte("x"))
	if !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable: nothing may be sent later in silence", err)
	}
	select {
	case <-b.Closed():
		t.Error("closed for good")
	default:
	}
	b.Close()
	<-b.Closed()
}

func TestDrainOfALostConnectionReturns(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	if _, err := b.ConsumeCauses(natstest.Context(t), journal.ConsumeConfig{}, func(journal.Delivery) {}); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	natstest.Eventually(t, "the loss to be seen", func() bool { return !b.Connected() })
	if err := b.Drain(natstest.Context(t)); err != nil {
		t.Error(err)
	}
	<-b.Closed()
	if err := b.Drain(natstest.Context(t)); err != nil {
		t.Errorf("again: %v", err)
	}
}

package engine_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// BenchmarkTool compares an instant tool call with the raw request it is made of.
func BenchmarkTool(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		s := natstest.Start(b)
		one, two := natstest.Dial(b, bus.Config{InProcess: s}), natstest.Dial(b, bus.Config{InProcess: s})
		body, _ := json.Marshal(run("c1", "now"))
		if _, err := two.Conn().Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
			b.Fatal(err)
		}
		_ = two.Conn().Flush()
		for b.Loop() {
			if _, err := one.Conn().Request("raw", body, time.Second); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bus", func(b *testing.B) {
		s := natstest.Start(b)
		one, two := natstest.Dial(b, bus.Config{InProcess: s}), natstest.Dial(b, bus.Config{InProcess: s})
		body, _ := json.Marshal(run("c1", "now"))
		if _, err := two.Respond("raw", "", "two", func(q *bus.Request) { _ = q.Reply(q.Data) }); err != nil {
			b.Fatal(err)
		}
		_ = two.Conn().Flush()
		caller, err := one.NewCaller()
		if err != nil {
			b.Fatal(err)
		}
		got := make(chan struct{}, 1)
		for b.Loop() {
			cancel, err := caller.Send(context.Background(), "raw", "two", nil, body, func(bus.Reply) { got <- struct{}{} })
			if err != nil {
				b.Fatal(err)
			}
			<-got
			cancel()
		}
	})
	b.Run("executor", func(b *testing.B) {
		cfg := runner(nil)
		cfg.Logger, cfg.Pools = slog.New(slog.DiscardHandler), nil
		c := start(b, cfg)
		inst := c.exec.Instance()
		subj, got, i := subject.Executor(c.kind, inst), make(chan struct{}, 2), 0
		for b.Loop() {
			i++
			r := run("c", "now")
			r.Attempt = time.Duration(i).String()
			body, _ := json.Marshal(r)
			cancel, err := c.caller.Send(context.Background(), subj, string(inst), nil, body,
				func(bus.Reply) { got <- struct{}{} })
			if err != nil {
				b.Fatal(err)
			}
			<-got
			cancel()
			r = contract.Request{Op: contract.OpRelease, Call: r.Call, Attempt: r.Attempt}
			body, _ = json.Marshal(r)
			if err := c.exec.Publish(context.Background(), subj, nil, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

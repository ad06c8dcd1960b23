package plugintest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/test/natstest"
)

// One hook of the SDK over TCP, asked by the hook engine, beside a request with the
// same body that is answered by a plain subscription.
func BenchmarkHook(b *testing.B) {
	srv := natstest.Start(b, natstest.WithTCP())
	core := natstest.ConnectURL(b, srv.ClientURL())
	natstest.EnsureStreams(b, core)
	caller, err := core.NewCaller()
	if err != nil {
		b.Fatal(err)
	}
	desk := natstest.ConnectURL(b, srv.ClientURL())
	for _, v := range []string{"register", "heartbeat", "unregister"} {
		_, err := desk.Conn().Subscribe("plugin."+v+".*", func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"plugin":"p","instance":"i","state":"active","ttl_ms":60000,"hash":"00000000000000000000000000000000"}`))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	other := natstest.Dial(b, bus.Config{URL: srv.ClientURL(), Name: "p"})
	if _, err := other.Conn().QueueSubscribe("raw.p", "p",
		func(m *nats.Msg) { _ = m.Respond([]byte(`{"verb":"continue"}`)) }); err != nil {
		b.Fatal(err)
	}
	active := make(chan struct{})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() {
		done <- plugin.Serve(ctx, plugin.Manifest{Name: "p", Version: "1.0.0"}, plugin.Handlers{
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Continue(), nil
			}),
		}, plugin.WithBus(other.Bus), plugin.OnState(func(s plugin.LeaseState, _ string) {
			if s == plugin.Active {
				close(active)
			}
		}))
	}()
	<-active
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	e := dispatch.New(dispatch.Config{Ask: caller.RequestAll})
	table := e.NewHookSet([]dispatch.Hooked{{Plugin: "p", Point: hook.BeforeAct}}, nil)
	env := hook.Envelope{
		Point: hook.BeforeAct, Agent: "main", Session: "s1", Turn: "t1", Step: "t1-p1-c0",
		Data: json.RawMessage(`{"call":"t1-p1-c0","tool":"file_system:write_file","args":{"path":"notes.txt","content":"hello"}}`),
	}
	b.Run("asked", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			env.Cause = uint64(i)
			if d := table.Run(env); d.Verb != hook.Continue || d.Verdicts[0].Error != "" {
				b.Fatalf("%+v", d)
			}
		}
	})
	body, err := json.Marshal(env)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := core.Conn().Request("raw.p", body, time.Second); err != nil {
				b.Fatal(err)
			}
		}
	})
}

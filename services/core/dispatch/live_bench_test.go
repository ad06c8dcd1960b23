package dispatch_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/test/natstest"
)

// Five plugins over TCP, in a chain and in parallel, beside raw requests with the
// same bodies to the same plugins.
func BenchmarkFiveHooks(b *testing.B) {
	srv := natstest.Start(b, natstest.WithTCP())
	core := natstest.ConnectURL(b, srv.ClientURL())
	caller, err := core.NewCaller()
	if err != nil {
		b.Fatal(err)
	}
	e := dispatch.New(dispatch.Config{Ask: caller.RequestAll})
	var names []subject.Plugin
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		names = append(names, subject.Plugin(name))
		other := natstest.Dial(b, bus.Config{URL: srv.ClientURL(), Name: name})
		for _, subj := range []string{"hook.*." + name, "raw." + name} {
			if _, err := other.Conn().QueueSubscribe(subj, name,
				func(m *nats.Msg) { _ = m.Respond([]byte(`{"verb":"continue"}`)) }); err != nil {
				b.Fatal(err)
			}
		}
		if err := other.Conn().Flush(); err != nil {
			b.Fatal(err)
		}
	}
	env := hook.Envelope{
		Point: hook.BeforeAct, Agent: "main", Session: "s1", Turn: "t1", Step: "t1-p1-c0",
		Data: json.RawMessage(`{"call":"t1-p1-c0","tool":"file_system:write_file","args":{"path":"notes.txt","content":"hello"}}`),
	}
	body, err := json.Marshal(env)
	if err != nil {
		b.Fatal(err)
	}
	for _, mode := range []hook.Mode{hook.Chain, hook.Parallel} {
		table := e.NewHookSet(at(hook.BeforeAct, mode, names...), nil)
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := table.Run(env); d.Verb != hook.Continue || d.Verdicts[4].Error != "" {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
	nc := core.Conn()
	b.Run("raw requests", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, n := range names {
				if _, err := nc.Request("raw."+string(n), body, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("raw scatter and gather", func(b *testing.B) {
		b.ReportAllocs()
		inbox := nc.NewRespInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for _, n := range names {
				if err := nc.PublishRequest("raw."+string(n), inbox, body); err != nil {
					b.Fatal(err)
				}
			}
			for range names {
				if _, err := sub.NextMsg(time.Second); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

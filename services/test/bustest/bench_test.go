package bustest

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

var commitBody = make([]byte, 2<<10)

func benchBoth(b *testing.B, f func(b *testing.B, opts ...natstest.Option)) {
	b.Run("relaxed", func(b *testing.B) { f(b) })
	b.Run("always", func(b *testing.B) { f(b, natstest.WithSync(natsserver.Always)) })
	b.Run("relaxed-tcp", func(b *testing.B) { f(b, natstest.WithTCP()) })
}

func BenchmarkAppendCommit(b *testing.B) {
	benchBoth(b, func(b *testing.B, opts ...natstest.Option) {
		k := connectBench(b, natstest.Start(b, opts...))
		ctx := context.Background()
		var prev uint64
		b.ReportAllocs()
		for b.Loop() {
			seq, err := k.AppendCommit(ctx, ref("one"), commitBody, prev)
			if err != nil {
				b.Fatal(err)
			}
			prev = seq
		}
	})
}

func BenchmarkRawJetStreamPublish(b *testing.B) {
	benchBoth(b, func(b *testing.B, opts ...natstest.Option) {
		k := connectBench(b, natstest.Start(b, opts...))
		ctx := context.Background()
		var prev uint64
		b.ReportAllocs()
		for b.Loop() {
			ack, err := k.JetStream().PublishMsg(ctx, &nats.Msg{Subject: ref("one").Commit(), Data: commitBody},
				jetstream.WithExpectLastSequencePerSubject(prev))
			if err != nil {
				b.Fatal(err)
			}
			prev = ack.Sequence
		}
	})
}

func BenchmarkPublishCause(b *testing.B) {
	benchBoth(b, func(b *testing.B, opts ...natstest.Option) {
		k := connectBench(b, natstest.Start(b, opts...))
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.PublishCause(ctx, ref("one"), "input", "w", "", commitBody); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCallerRequest(b *testing.B) {
	c, k, _ := pair(b)
	respond(b, k, "tool.echo.say", "echo", echo)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Request(ctx, "tool.echo.say", "echo", commitBody); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRawRequest(b *testing.B) {
	s := natstest.Start(b)
	asker, k := natstest.Connect(b, s), natstest.Connect(b, s)
	_, err := k.Conn().QueueSubscribe("tool.echo.say", "echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		b.Fatal(err)
	}
	if err := k.Conn().Flush(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := asker.Conn().RequestWithContext(ctx, "tool.echo.say", commitBody); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefold1000Commits(b *testing.B) {
	k := natstest.Connect(b, natstest.Start(b))
	commits(b, k, ref("one"), 1000, len(commitBody))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range k.Commits(ctx, ref("one"), 0) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 1000 {
			b.Fatalf("%d commits", n)
		}
	}
}

func BenchmarkLastCommit(b *testing.B) {
	k := natstest.Connect(b, natstest.Start(b))
	commits(b, k, ref("one"), 10, len(commitBody))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.LastCommit(ctx, ref("one")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := natsserver.Start(natsserver.Config{StoreDir: b.TempDir(), Logger: natstest.Logger(b)})
		if err != nil {
			b.Fatal(err)
		}
		s.Shutdown()
	}
}

// connectBench connects over TCP if the server listens.
func connectBench(b *testing.B, s *natsserver.Server) *journal.Journal {
	if s.ClientURL() != "" {
		return natstest.ConnectURL(b, s.ClientURL())
	}
	return natstest.Connect(b, s)
}

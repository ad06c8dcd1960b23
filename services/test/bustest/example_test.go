package bustest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
)

// exampleBus is a server with its streams and a connection to it.
func exampleBus() (b *journal.Journal, stop func()) {
	dir, err := os.MkdirTemp("", "bus-example-")
	if err != nil {
		panic(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	srv, err := natsserver.Start(natsserver.Config{StoreDir: dir, Sync: natsserver.Relaxed, Logger: quiet})
	if err != nil {
		panic(err)
	}
	b, err = journal.Connect(context.Background(), bus.Config{InProcess: srv, Name: "example", Logger: quiet})
	if err != nil {
		panic(err)
	}
	if err := b.EnsureStreams(context.Background(), journal.StreamsConfig{}); err != nil {
		panic(err)
	}
	return b, func() {
		b.Close()
		srv.Shutdown()
		_ = os.RemoveAll(dir)
	}
}

// An input is stored once, however often its sender repeats it.
func ExampleBus_PublishCause() {
	b, stop := exampleBus()
	defer stop()
	ctx := context.Background()
	session := subject.Ref{Agent: "ada", Session: "one"}
	for range 2 {
		seq, err := b.PublishCause(ctx, session, subject.Input, "stdin", "id-1", []byte(`{"text":"hello"}`))
		fmt.Println(seq, err)
	}
	// Output:
	// 1 <nil>
	// 1 <nil>
}

// A commit is stored behind the one it was made for, or not at all.
func ExampleJournal_AppendCommit() {
	b, stop := exampleBus()
	defer stop()
	ctx := context.Background()
	session := subject.Ref{Agent: "ada", Session: "one"}
	first, err := b.AppendCommit(ctx, session, []byte(`[…]`), 0)
	fmt.Println(first, err)
	_, err = b.AppendCommit(ctx, session, []byte(`[…]`), 0)
	fmt.Println(errors.Is(err, bus.ErrFenceLost))
	for m, err := range b.Commits(ctx, session, 0) {
		fmt.Println(m.Seq, m.Subject, err)
	}
	// Output:
	// 1 <nil>
	// true
	// 1 agent.ada.one.commit <nil>
}

// A plugin answers under its own name, and its errors are the caller's.
func ExampleCaller_Request() {
	b, stop := exampleBus()
	defer stop()
	ctx := context.Background()
	tool := subject.Tool("calc", "double")
	_, err := b.Respond(tool, "calc", "calc", func(q *bus.Request) {
		if len(q.Data) == 0 {
			_ = q.ReplyError(bus.Errorf(bus.CodeInvalidArgument, "x is missing"))
			return
		}
		_ = q.Reply(append(q.Data, q.Data...))
	})
	if err != nil {
		panic(err)
	}
	caller, err := b.NewCaller()
	if err != nil {
		panic(err)
	}
	answer, err := caller.Request(ctx, tool, "calc", []byte("21"))
	fmt.Println(string(answer), err)
	_, err = caller.Request(ctx, tool, "calc", nil)
	fmt.Println(errors.Is(err, bus.ErrInvalidArgument), err)
	// Output:
	// 2121 <nil>
	// true asking tool.calc.double: x is missing
}

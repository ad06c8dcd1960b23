// Command skandha-peers is the other engines that `skandha bench peers` measures: with a name, it is that engine, and
// starts what servers it needs; without, it prints the names.
//
// It is a separate module, outside of the workspace, because of what the engines' libraries bring. `make peers`
// builds and runs it. A turn is the same everywhere: a text of 200 bytes, a model that asks for a tool, the tool, and
// the model's answer. Nothing of them costs anything; each step is recorded before the next begins.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	peers "skandha.dev/deploy/bench/peers/protocol"
)

// engine makes an engine that stores everything in a directory, and what ends it. The Hello says what is missing
// if it cannot run here.
type engine func(ctx context.Context, dir string) (hello peers.Hello, open open, stop func(), err error)

type open = func(context.Context) (peers.Session, error)

// engines are in the order of the table.
var engines = []struct {
	name string
	make engine
}{
	{"adk-go", adk},
	{"temporal", temporal},
	{"restate", restate},
	{"dbos", dbos},
}

func main() {
	if len(os.Args) < 2 {
		for _, e := range engines {
			fmt.Println(e.name)
		}
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // the end of the input ends it, and its servers
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "skandha-peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, e := range engines {
		if e.name != name {
			continue
		}
		hello, open, stop, err := e.make(ctx, dir)
		if err != nil {
			return err
		}
		defer stop()
		return peers.Serve(ctx, hello, os.Stdin, os.Stdout, open)
	}
	return fmt.Errorf("unknown engine %q", name)
}

// version is that of a module that this program is built with.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "unknown"
}

func missing(why string) (peers.Hello, open, func(), error) {
	return peers.Hello{Missing: why}, nil, func() {}, nil
}

// always opens the same session: for engines in which a turn is a separate run.
type always func(ctx context.Context) error

func (a always) Turn(ctx context.Context) error { return a(ctx) }

func (a always) Close() {}

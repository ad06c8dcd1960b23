package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
)

// pluginCount is how many plugins B1 and B2 ask.
const pluginCount = 5

// pluginHooks is B1 and B2: plugins that registered, each in a separate process,
// asked by a core in this one over TCP; beside requests with the same body to the
// same processes, by the NATS client alone.
func pluginHooks(ctx context.Context, o Options) ([]Row, error) {
	if o.Spawn == nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	var running []*process
	defer func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
	}()
	env := []string{"SKANDHA_BENCH_DIR=" + dir, "SKANDHA_BENCH_SYNC=" + string(natsserver.Relaxed)}
	server, err := spawn(ctx, o.Spawn("server"), env...)
	if err != nil {
		return nil, err
	}
	running = append(running, server)
	b, err := journal.Connect(ctx, bus.Config{URL: server.ready, Name: "core", Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	r := &rig{dir: dir}
	defer r.stop()
	if err := r.runCore(ctx, b); err != nil {
		return nil, err
	}
	for i := range pluginCount {
		p, err := spawn(ctx, o.Spawn("plugin"),
			append(env, "SKANDHA_BENCH_URL="+server.ready, "SKANDHA_BENCH_PLUGIN="+pluginName(i))...)
		if err != nil {
			return nil, err
		}
		running = append(running, p)
	}
	return askPlugins(ctx, o, b.Conn(), func(env hook.Envelope) (hook.Decision, error) {
		t := r.core.Hooks()
		if n := len(t.Hooks(env.Point)); n != pluginCount {
			return hook.Decision{}, fmt.Errorf("%d plugins at %s, want %d", n, env.Point, pluginCount)
		}
		return t.Run(env), nil
	})
}

func pluginName(i int) string { return "p" + strconv.Itoa(i) }

func askPlugins(
	ctx context.Context, o Options, nc *nats.Conn, run func(hook.Envelope) (hook.Decision, error),
) ([]Row, error) {
	chain := hook.Envelope{
		Point: hook.BeforeAct, Agent: "main", Session: "one", Turn: "t1", Step: "t1-p1-c0",
		Data: json.RawMessage(`{"call":"t1-p1-c0","tool":"file_system:write_file","args":{"path":"notes.txt","content":"the demo is on Friday"}}`),
	}
	parallel := chain
	parallel.Point = hook.AfterAct
	parallel.Data = json.RawMessage(`{"call":"t1-p1-c0","tool":"file_system:write_file","args":{"path":"notes.txt","content":"the demo is on Friday"},"result":{"success":true,"data":{"bytes":21}}}`)
	ask := func(env hook.Envelope) func(context.Context) error {
		return func(context.Context) error {
			d, err := run(env)
			if err == nil &&
				(len(d.Verdicts) != pluginCount || d.Verb != hook.Continue || d.Verdicts[pluginCount-1].Error != "") {
				err = fmt.Errorf("the plugins did not all continue: %+v", d)
			}
			return err
		}
	}
	x, y, err := interleave(ctx, o.n(3000), ask(chain), rawChain(nc, chain))
	if err != nil {
		return nil, err
	}
	rows := []Row{ratio("B1", "a chain of 5 hooks, plugins in other processes", x, y, 1.15)}
	raw, done, err := rawScatter(nc, parallel)
	if err != nil {
		return rows, err
	}
	defer done()
	x, y, err = interleave(ctx, o.n(3000), ask(parallel), raw)
	return append(rows, ratio("B2", "a parallel hook, 5 plugins in other processes", x, y, 1.25)), err
}

// body is what the first plugin is asked with.
func body(env hook.Envelope) []byte {
	env.Plugin, env.InvocationID, env.Deadline = "p0", "main/one/t1/0/before_act/t1-p1-c0/p0/0123456789abcdef", time.Now()
	b, err := json.Marshal(env)
	if err != nil {
		panic(err)
	}
	return b
}

func rawChain(nc *nats.Conn, env hook.Envelope) func(context.Context) error {
	data := body(env)
	return func(context.Context) error {
		for i := range pluginCount {
			if _, err := nc.Request("raw."+pluginName(i), data, 5*time.Second); err != nil {
				return err
			}
		}
		return nil
	}
}

func rawScatter(nc *nats.Conn, env hook.Envelope) (f func(context.Context) error, done func(), err error) {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, err
	}
	data := body(env)
	return func(context.Context) error {
		for i := range pluginCount {
			if err := nc.PublishRequest("raw."+pluginName(i), inbox, data); err != nil {
				return err
			}
		}
		for range pluginCount {
			if _, err := sub.NextMsg(5 * time.Second); err != nil {
				return err
			}
		}
		return nil
	}, func() { _ = sub.Unsubscribe() }, nil
}

// servePlugin is the main of one plugin's process.
func servePlugin(ctx context.Context, b *journal.Journal, name string) error {
	if _, err := b.Conn().QueueSubscribe("raw."+name, name,
		func(m *nats.Msg) { _ = m.Respond([]byte(`{"verb":"continue"}`)) }); err != nil {
		return err
	}
	var once sync.Once
	return plugin.Serve(ctx, plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0"}, plugin.Handlers{
		plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		}),
		plugin.AfterAct(func(context.Context, *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		}),
	}, plugin.WithBus(b.Bus), plugin.WithLogger(quiet), plugin.OnState(func(s plugin.LeaseState, _ string) {
		if s == plugin.Active {
			once.Do(func() { fmt.Println("READY") })
		}
	}))
}

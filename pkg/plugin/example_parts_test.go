package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// complete returns the manifest of a plugin with the handlers.
func complete(h ...plugin.Handler) plugin.Manifest {
	m, err := plugin.Handlers(h).Complete(plugin.Manifest{Name: "example", Version: "1.0.0", Instance: "example-1"})
	if err != nil {
		fmt.Println(err)
	}
	return m
}

// This is the whole of a program.
func ExampleMain() {
	plugin.Main(plugin.Manifest{Name: "oracle", Version: "1.0.0"}, plugin.Handlers{
		plugin.Tool("oracle:ask", "Answers any question.", func(context.Context, struct{}) (string, error) {
			return "Perhaps.", nil
		}),
	})
}

func ExampleSense() {
	m := complete(plugin.Sense("thermometer", func(ctx context.Context, e *plugin.Emitter) error {
		_, err := e.EmitInput(ctx, subject.Ref{Agent: "demo", Session: "kitchen"}, event.Input{Text: "It is 31 degrees."})
		return err
	}))
	fmt.Println(m.Sensors[0].Name)
	// Output: thermometer
}

// An id makes it safe to send an input again: the second one has no effect.
func ExampleEmitter_EmitInput() {
	m := complete(plugin.Listen("mail", func(ctx context.Context, e *plugin.Emitter) error {
		session := subject.Ref{Agent: "demo", Session: "inbox"}
		_, err := e.EmitInput(ctx, session, event.Input{ID: "message-7", Text: "Dinner?"})
		if errors.Is(err, bus.ErrAmbiguous) {
			_, err = e.EmitInput(ctx, session, event.Input{ID: "message-7", Text: "Dinner?"})
		}
		return err
	}))
	fmt.Println(m.Listeners[0].Name)
	// Output: mail
}

func ExampleEmitter_Name() {
	m := complete(plugin.Listen("bell", func(_ context.Context, e *plugin.Emitter) error {
		fmt.Println("this writes as", e.Name())
		return nil
	}))
	fmt.Println(m.Listeners[0].Name)
	// Output: bell
}

func ExampleGuide() {
	m := complete(plugin.Guide(guide.Guide{
		Name: "butler", SystemPrompt: "You are a butler.", InitialMemories: []string{"The guests are vegetarians."},
	}))
	fmt.Println(m.Guides)
	// Output: [butler]
}

// The guide is made for each request.
func ExampleGuideFunc() {
	m := complete(plugin.GuideFunc("butler", func(_ context.Context, r guide.Request) (guide.Guide, error) {
		return guide.Guide{SystemPrompt: "You are the butler of " + string(r.Agent) + "."}, nil
	}))
	fmt.Println(m.Guides)
	// Output: [butler]
}

// The manifest lists the verbs that have a function.
func ExampleStorageBackend() {
	values := map[string]json.RawMessage{}
	m := complete(plugin.StorageBackend{
		Put: func(_ context.Context, r plugin.StorageRequest) error {
			values[string(r.Agent)+"/"+r.Collection+"/"+r.Key] = r.Value
			return nil
		},
		Get: func(_ context.Context, r plugin.StorageRequest) (json.RawMessage, bool, error) {
			v, ok := values[string(r.Agent)+"/"+r.Collection+"/"+r.Key]
			return v, ok, nil
		},
	})
	fmt.Println(m.Storage.Verbs)
	// Output: [put get]
}

// What Load opens, Unload closes. Serve returns an error of Load.
func ExampleLoad() {
	err := plugin.Serve(context.Background(), plugin.Manifest{Name: "ledger", Version: "1.0.0"}, plugin.Handlers{
		plugin.Load(func(context.Context) error { return errors.New("the ledger is locked") }),
	}, plugin.WithConfig(bus.Config{}))
	fmt.Println(err != nil)
	// Output: true
}

func ExampleUnload() {
	closed := func(context.Context) error { return nil }
	m := complete(plugin.Load(closed), plugin.Unload(closed))
	fmt.Println(m.Name)
	// Output: example
}

// hello is a tool without arguments.
func hello(context.Context, struct{}) (string, error) { return "hello", nil }

// spec prints what the manifest says of one tool, except for its arguments.
func spec(opts ...plugin.ToolOption) {
	s := complete(plugin.Tool("hello:say", "Says hello.", hello, opts...)).Tools[0]
	s.Name, s.Description, s.Args = "", "", nil
	b, err := json.Marshal(s)
	fmt.Println(string(b), err)
}

// The schema comes from elsewhere, and the tool gets the arguments as they are.
func ExampleArgs() {
	schema := json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}}}`)
	m := complete(plugin.Tool("mail:send", "Sends mail.", func(_ context.Context, args json.RawMessage) (int, error) {
		return len(args), nil
	}, plugin.Args(schema)))
	fmt.Println(string(m.Tools[0].Args))
	// Output: {"type":"object","properties":{"to":{"type":"string"}}}
}

func ExampleIdempotent() {
	spec(plugin.Idempotent())
	// Output: {"name":"","description":"","args":null,"idempotent":true} <nil>
}

func ExampleInternal() {
	spec(plugin.Internal())
	// Output: {"name":"","description":"","args":null,"internal":true} <nil>
}

func ExampleRisk() {
	spec(plugin.Risk(tool.RiskHigh))
	// Output: {"name":"","description":"","args":null,"risk":"high"} <nil>
}

func ExamplePermissions() {
	spec(plugin.Permissions("network.request"))
	// Output: {"name":"","description":"","args":null,"permissions":["network.request"]} <nil>
}

// An approval for the session then covers other texts to the same address.
func ExampleScope() {
	spec(plugin.Scope("to"))
	// Output: {"name":"","description":"","args":null,"scope":["to"]} <nil>
}

func ExampleScenarios() {
	spec(plugin.Scenarios(tool.Scenarios()[0]))
	// Output: {"name":"","description":"","args":null,"scenario_tags":["information_retrieval"]} <nil>
}

func ExampleTimeout() {
	spec(plugin.Timeout(5 * time.Minute))
	// Output: {"name":"","description":"","args":null,"timeout_ms":300000} <nil>
}

// Outside of a call, as in a test, there is none.
func ExampleCallOf() {
	_, ok := plugin.CallOf(context.Background())
	fmt.Println(ok)
	// Output: false
}

// serve runs a plugin that ends before it connects.
func serve(opts ...plugin.Option) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	fmt.Println(plugin.Serve(ctx, plugin.Manifest{Name: "brief", Version: "1.0.0"}, plugin.Handlers{
		plugin.Tool("hello:say", "Says hello.", hello),
	}, opts...))
}

// A program that has a connection lends it to the plugin.
func ExampleWithBus() {
	ctx := context.Background()
	b, err := bus.Connect(ctx, bus.Config{URL: "nats://127.0.0.1:4222", Name: "host"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	fmt.Println(plugin.Serve(ctx, plugin.Manifest{Name: "guest", Version: "1.0.0"}, plugin.Handlers{
		plugin.Tool("hello:say", "Says hello.", hello),
	}, plugin.WithBus(b)))
}

func ExampleWithConfig() {
	serve(plugin.WithConfig(bus.Config{URL: "nats://127.0.0.1:1", Token: "secret"}))
	// Output: <nil>
}

func ExampleWithLogger() {
	serve(plugin.WithLogger(slog.New(slog.DiscardHandler)))
	// Output: <nil>
}

// The plugin can be reached while its state is active.
func ExampleOnState() {
	serve(plugin.OnState(func(state plugin.LeaseState, reason string) {
		slog.Debug("changed", "state", state, "reason", reason)
	}))
	// Output: <nil>
}

// The handlers share something that only one may use at a time.
func ExampleConcurrency() {
	serve(plugin.Concurrency(1))
	// Output: <nil>
}

func ExampleDrainTimeout() {
	serve(plugin.DrainTimeout(time.Second))
	// Output: <nil>
}

func ExampleManifest_Check() {
	err := plugin.Manifest{Name: "my plugin", Version: "1.0.0", Instance: "a"}.Check()
	fmt.Println(err)
	// Output: name: "my plugin" is not a valid id: want 1 to 64 characters of A-Z a-z 0-9 _ -
}

// Replicas differ in their instance alone, so they have one hash.
func ExampleManifest_Hash() {
	a := complete(plugin.Guide(guide.Guide{Name: "g", SystemPrompt: "p"}))
	b := a
	b.Instance = "example-2"
	fmt.Println(a.Hash() == b.Hash())
	// Output: true
}

func ExampleProblems_At() {
	p := plugin.Problems{{Path: "tools[1]", Message: "is a duplicate"}}
	fmt.Println(p, p.At("tools[1].name"), p.At("tools[0]"))
	// Output: tools[1]: is a duplicate true false
}

package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// TestMain prevents the examples from connecting to a system that runs on this machine.
func TestMain(m *testing.M) {
	if err := os.Setenv("SKANDHA_NATS", "nats://127.0.0.1:1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A policy in one function. If it does not reply before its deadline, the call is denied.
func ExampleServe() {
	ctx, stop := context.WithCancel(context.Background())
	stop() // at once, for the example; a program waits for a signal, see Main

	err := plugin.Serve(ctx, plugin.Manifest{Name: "policy", Version: "1.0.0"}, plugin.Handlers{
		plugin.BeforeAct(func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			switch {
			case strings.HasPrefix(c.Data.Tool, "shell:"):
				return plugin.Deny("shell commands are not allowed"), nil
			case strings.HasPrefix(c.Data.Tool, "mail:"):
				return plugin.Confirm(hook.LevelWarn, "The agent wants to send mail."), nil
			}
			return plugin.Continue(), nil
		}),
	})
	fmt.Println(err)
	// Output: <nil>
}

// The schema of a tool is derived from the struct of its arguments.
func ExampleTool() {
	type question struct {
		Place string `json:"place" desc:"A town, such as Oslo"`
		Days  int    `json:"days" min:"1" max:"7" default:"1"`
		Unit  string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
	}
	forecast := func(ctx context.Context, q question) ([]string, error) {
		call, _ := plugin.CallOf(ctx)
		if q.Place == "" {
			return nil, errors.New("place is missing in call " + call.Call)
		}
		return make([]string, q.Days), nil
	}
	m, err := plugin.Handlers{
		plugin.Tool("weather:forecast", "Returns the weather forecast.", forecast, plugin.Idempotent()),
	}.Complete(plugin.Manifest{Name: "weather", Version: "1.0.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := json.MarshalIndent(m.Tools[0].Args, "", "  ")
	fmt.Println(string(out), err)
	// Output:
	// {
	//   "additionalProperties": false,
	//   "properties": {
	//     "days": {
	//       "default": 1,
	//       "maximum": 7,
	//       "minimum": 1,
	//       "type": "integer"
	//     },
	//     "place": {
	//       "description": "A town, such as Oslo",
	//       "type": "string"
	//     },
	//     "unit": {
	//       "default": "celsius",
	//       "enum": [
	//         "celsius",
	//         "fahrenheit"
	//       ],
	//       "type": "string"
	//     }
	//   },
	//   "required": [
	//     "place"
	//   ],
	//   "type": "object"
	// } <nil>
}

// A manifest from a file is compared with the handlers, and all problems are reported
// together.
func ExampleHandlers_Complete() {
	m, err := plugin.DecodeManifest([]byte(`{
		"name": "vault", "version": "1.2.0", "instance": "vault-1",
		"hooks": [{"point": "before_act"}], "guides": ["keeper"]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = plugin.Handlers{
		plugin.AfterAct(func(context.Context, *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		}),
	}.Complete(m)
	var problems plugin.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p)
		}
	}
	// Output:
	// hooks[0].point: "before_act" is declared, but has no handler
	// hooks: "after_act" has a handler, but the manifest does not declare it; declare it, or leave hooks out of the manifest
	// guides[0]: "keeper" is declared, but has no handler
}

// A language model.
func ExampleProvider() {
	model := plugin.Provider(provider.Info{Name: "yes", Model: "yes-1"},
		func(_ context.Context, call provider.Call) (provider.Response, error) {
			return provider.Response{TextContent: "Yes.", StopReason: provider.StopEnd}, nil
		})
	m, err := plugin.Handlers{model}.Complete(plugin.Manifest{Name: "yes", Version: "1.0.0"})
	fmt.Println(m.Providers[0].Name, err)
	// Output: yes <nil>
}

// A listener sends inputs to the agent. It runs while the plugin is active, and is restarted
// after an error.
func ExampleListen() {
	heard := make(chan string)
	listener := plugin.Listen("microphone", func(ctx context.Context, e *plugin.Emitter) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case text := <-heard:
				session := subject.Ref{Agent: "demo", Session: "kitchen"}
				if _, err := e.EmitInput(ctx, session, event.Input{Text: text}); err != nil {
					return err
				}
			}
		}
	})
	m, err := plugin.Handlers{listener}.Complete(plugin.Manifest{Name: "audio", Version: "1.0.0"})
	fmt.Println(m.Listeners[0].Name, err)
	// Output: microphone <nil>
}

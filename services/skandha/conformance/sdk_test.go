package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// sdkPlugin is a plugin that has everything, written with the SDK.
func sdkPlugin() {
	slow := plugin.Deadline(30 * time.Second) // as the machine may be
	plugin.Main(plugin.Manifest{Name: "everything", Version: "0.1.0-rc.1", Dependencies: []subject.Plugin{"another"}},
		plugin.Handlers{
			plugin.OnAgentStart(func(context.Context, *plugin.HookCall[hook.AgentData]) error { return nil }, slow),
			plugin.BeforeSense(func(_ context.Context, c *plugin.HookCall[hook.SenseData]) (plugin.Reply, error) {
				c.Data.Text += "!"
				return plugin.Replace(c.Data), nil
			}, slow),
			plugin.AfterSense(func(_ context.Context, c *plugin.HookCall[hook.PerceptionsData]) (plugin.Reply, error) {
				for i := range c.Data.Perceptions {
					c.Data.Perceptions[i].Annotations = append(c.Data.Perceptions[i].Annotations, "seen")
				}
				return plugin.Replace(c.Data), nil
			}, slow),
			plugin.BeforePlan(func(_ context.Context, c *plugin.HookCall[hook.PlanData]) (plugin.Reply, error) {
				c.Data.Advice = append(c.Data.Advice, "be brief")
				return plugin.Replace(c.Data), nil
			}, slow),
			plugin.AfterPlan(func(context.Context, *plugin.HookCall[hook.AfterPlanData]) (plugin.Reply, error) {
				return plugin.Stop(), nil
			}, slow),
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Confirm(hook.LevelWarn, "are you sure?"), nil
			}, slow),
			plugin.AfterAct(func(_ context.Context, c *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
				c.Data.Result.Metadata = map[string]any{"seen": true}
				return plugin.Replace(c.Data), nil
			}, slow),
			plugin.BeforeReflect(func(_ context.Context, c *plugin.HookCall[hook.ReflectData]) (plugin.Reply, error) {
				c.Data.Notes = append(c.Data.Notes, "noted")
				return plugin.Replace(c.Data), nil
			}, slow),
			plugin.AfterReflect(func(context.Context, *plugin.HookCall[hook.ReflectData]) error { return nil }, slow),
			plugin.OnError(func(context.Context, *plugin.HookCall[hook.ErrorData]) error { return nil }, slow),
			plugin.OnAgentStop(func(context.Context, *plugin.HookCall[hook.AgentData]) error { return nil }, slow),
			plugin.Tool("everything:now", "Says the time.", func(context.Context, struct {
				Zone string `json:"zone" enum:"UTC,Local" default:"UTC"`
			},
			) (string, error) {
				return time.Now().Format(time.RFC3339Nano), nil // another one each time it runs
			}),
			plugin.Tool("everything:fail", "Fails.",
				func(context.Context, struct{}) (string, error) { return "", errors.New("as always") }),
			plugin.Provider(provider.Info{Name: "echo", Model: "e1"},
				func(context.Context, provider.Call) (provider.Response, error) {
					return provider.Response{TextContent: "hello"}, nil
				}),
			memory(),
			plugin.Guide(guide.Guide{Name: "kind", SystemPrompt: "Be kind."}),
			plugin.Listen("everything-ear", func(ctx context.Context, e *plugin.Emitter) error {
				_, err := e.EmitInput(ctx, subject.Ref{Agent: "main", Session: "ear"}, event.Input{Text: "hello", ID: "one"})
				return err
			}),
		})
}

type entry struct {
	key, text string
	value     json.RawMessage
}

// memory is a storage backend of this process. Replicas of one would share it.
func memory() plugin.Handler {
	var mu sync.Mutex
	all := map[string][]entry{}
	at := func(r plugin.StorageRequest) string { return string(r.Agent) + "/" + r.Collection }
	without := func(r plugin.StorageRequest) []entry {
		return slices.DeleteFunc(slices.Clone(all[at(r)]), func(e entry) bool { return e.key == r.Key })
	}
	return plugin.StorageBackend{
		Put: func(_ context.Context, r plugin.StorageRequest) error {
			mu.Lock()
			defer mu.Unlock()
			all[at(r)] = append(without(r), entry{r.Key, cmp.Or(r.Text, string(r.Value)), r.Value})
			return nil
		},
		Get: func(_ context.Context, r plugin.StorageRequest) (json.RawMessage, bool, error) {
			mu.Lock()
			defer mu.Unlock()
			i := slices.IndexFunc(all[at(r)], func(e entry) bool { return e.key == r.Key })
			if i < 0 {
				return nil, false, nil
			}
			return all[at(r)][i].value, true, nil
		},
		Delete: func(_ context.Context, r plugin.StorageRequest) error {
			mu.Lock()
			defer mu.Unlock()
			all[at(r)] = without(r)
			return nil
		},
		Search: func(_ context.Context, r plugin.StorageRequest) (out []plugin.StorageEntry, err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range all[at(r)] {
				if strings.Contains(e.text, r.Query) {
					out = append(out, plugin.StorageEntry{Key: e.key, Value: e.value, Score: 1})
				}
			}
			return out, nil
		},
	}
}

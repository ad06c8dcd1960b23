package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// world is a complete system, and an inspector of it.
type world struct {
	*testing.T
	system    *system.System
	client    *client.Client
	methods   map[string]contract.Method
	artifacts http.Handler
}

const config = `
agents:
  main: {}
  other: {}
  secret: {}
policy:
  - {tool: "time:now", effect: confirm, reason: "the time is precious"}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := natstest.Context(t)
	s, err := system.Start(ctx, system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", ConfigFile: filepath.Join(dir, "config.yaml"),
		Models: []provider.Adapter{scripted.New()}, Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b, err := s.Connect(ctx, "uibridge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	c, err := client.New(b, "ui-ada", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	deps := inspect.Deps{Client: c, Log: natstest.Logger(t)}
	w := &world{T: t, system: s, client: c, methods: map[string]contract.Method{}}
	for _, m := range inspect.Methods(deps) {
		w.methods[m.Name] = m
	}
	mux := http.NewServeMux()
	mux.Handle(inspect.ArtifactsPattern, inspect.Artifacts(deps))
	w.artifacts = mux
	return w
}

// ada has all rights.
var ada = contract.Principal{Name: "ada", Writer: "ui-ada", Rights: contract.AllRights()}

// call calls a method as ada and decodes its answer; see try.
func call[A any](w *world, method string, params any) A {
	w.Helper()
	a, err := try[A](w, ada, method, params)
	if err != nil {
		w.Fatalf("%s %v: %v", method, params, err)
	}
	return a
}

// try calls a method and decodes its answer, which must be valid against its schema.
func try[A any](w *world, p contract.Principal, method string, params any) (a A, err error) {
	w.Helper()
	var raw json.RawMessage
	if params != nil {
		if raw, err = json.Marshal(params); err != nil {
			w.Fatal(err)
		}
	}
	v, err := w.methods[method].Call(natstest.Context(w.T), p, raw)
	if err != nil {
		return a, err
	}
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil {
		err = allowed(method, b)
	}
	if err != nil {
		w.Fatal(err)
	}
	return a, nil
}

// refused checks the code and the field with which a call is refused.
func (w *world) refused(p contract.Principal, method string, params any) string {
	w.Helper()
	_, err := try[any](w, p, method, params)
	var e *contract.Error
	if !errors.As(err, &e) {
		return "it is not refused: " + errorText(err)
	}
	return strings.TrimSuffix(string(e.Code)+" "+e.Field, " ")
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// say runs a turn to its end, answering confirmation requests, and returns its sequence.
func (w *world) say(ref subject.Ref, text string, approve ...bool) uint64 {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	items, err := w.client.Follow(ctx, ref)
	if err != nil {
		w.Fatal(err)
	}
	seq, err := w.client.Say(ctx, ref, event.Input{Text: text, Source: "test"})
	if err != nil {
		w.Fatal(err)
	}
	for i := range items {
		switch i.Event.Type {
		case event.TypeToolCallRequest:
			var q event.ToolCallRequest
			if err := i.Event.DataAs(&q); err != nil {
				w.Fatal(err)
			}
			if len(approve) == 0 {
				w.Fatalf("nobody expected to be asked about %s", q.ToolName)
			}
			if err := w.client.Confirm(ctx, ref, q, approve[0], "as the test says"); err != nil {
				w.Fatal(err)
			}
			approve = approve[1:]
		case event.TypeRecorded, event.TypeTurnFailed:
			return seq
		}
	}
	w.Fatalf("the turn of %q does not end", text)
	return 0
}

// join runs a plugin that allows all tool calls, until the test ends.
func (w *world) join(name subject.Plugin) {
	w.Helper()
	if _, err := w.system.Invite(natstest.Context(w.T), rights.Local(subject.Identity(name))); err != nil {
		w.Fatal(err)
	}
	b, err := w.system.Connect(natstest.Context(w.T), string(name))
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		pass := plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			return plugin.Continue(), nil
		})
		done <- plugin.Serve(ctx, plugin.Manifest{Name: name, Version: "1.2.3"}, plugin.Handlers{pass}, plugin.WithBus(b.Bus))
	}()
	w.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.Errorf("the plugin %s ended with %v", name, err)
		}
		b.Close()
	})
	natstest.Eventually(w.T, "core asks the plugin "+string(name), func() bool {
		return slices.ContainsFunc(call[coreapi.HooksInfo](w, "getHooks", nil).Points, func(p coreapi.PointInfo) bool {
			return slices.ContainsFunc(p.Plugins, func(h coreapi.HookInfo) bool { return h.Plugin == name && h.Unasked == "" })
		})
	})
}

var kitchen = subject.Ref{Agent: "main", Session: "kitchen"}

type names struct {
	Agent   subject.Agent   `json:"agent,omitempty"`
	Session subject.Session `json:"session,omitempty"`
	Turn    string          `json:"turn,omitempty"`
	Limit   int             `json:"limit,omitempty"`
	Before  string          `json:"before,omitempty"`
}

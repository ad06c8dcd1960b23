package plugintest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// model is what the model does with its input.
const model = `
rules:
  - name: forecast
    match: ['^forecast for (?P<place>\w+)$']
    calls: [{tool: 'weather:forecast', args: {place: '{{.place}}', days: 2}}]
  - name: write
    match: ['^write (?P<name>[\w.]+)$']
    calls: [{tool: 'file_system:write_file', args: {path: '{{.name}}', content: hello}}]
  - name: remember
    match: ['^remember (?P<what>.+)$']
    calls: [{tool: 'notes:add', args: {text: '{{.what}}'}}]
  - name: recall
    match: ['^recall (?P<what>.+)$']
    calls: [{tool: 'notes:search', args: {query: '{{.what}}'}}]
results:
  default: {success: 'done', failure: 'failed: {{.error.message}}'}
missing: 'no {{.tool}}'
fallback: 'what?'
`

// talk is a session of a whole system.
type talk struct {
	*rig
	ref    subject.Ref
	client *client.Client
	events <-chan follow.Item
	system *system.System
	seen   []follow.Item // by end
}

func newTalk(t *testing.T, change ...func(*system.Config)) *talk {
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	log := natstest.Logger(t)
	cfg := system.Config{
		Data: filepath.Join(dir, "data"), Sync: "relaxed", Provider: "offline", OfflineRules: rules, Log: log,
	}
	for _, f := range change {
		f(&cfg)
	}
	sys, err := system.Start(natstest.Context(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	b, err := sys.Connect(natstest.Context(t), "person")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	c, err := client.New(b, "person", log)
	if err != nil {
		t.Fatal(err)
	}
	talk := &talk{
		rig: &rig{T: t, bus: b, ask: caller(t, b)}, ref: subject.Ref{Agent: core.DefaultAgent, Session: "s1"}, client: c,
		system: sys,
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if talk.events, err = c.FollowFrom(ctx, talk.ref, follow.Position{Index: -1}); err != nil {
		t.Fatal(err)
	}
	return talk
}

// guest connects to the system, in which the plugin of that name may register.
func (k *talk) guest(name subject.Plugin, listeners ...subject.Writer) *journal.Journal {
	k.Helper()
	charter := rights.Local(subject.Identity(name))
	charter.Listeners = append(charter.Listeners, listeners...)
	if _, err := k.system.Invite(natstest.Context(k), charter); err != nil {
		k.Fatal(err)
	}
	b, err := k.system.Connect(natstest.Context(k), string(name))
	if err != nil {
		k.Fatal(err)
	}
	return b
}

// end waits for the next terminal event.
func (k *talk) end() event.Recorded {
	k.Helper()
	patience := time.After(natstest.Patience)
	for {
		select {
		case i := <-k.events:
			k.seen = append(k.seen, i)
			switch i.Event.Type {
			case event.TypeRecorded:
				var r event.Recorded
				if err := i.Event.DataAs(&r); err != nil {
					k.Fatal(err)
				}
				return r
			case event.TypeTurnFailed:
				k.Fatalf("the turn failed: %s", i.Event.Data)
			}
		case <-patience:
			k.Fatal("the turn does not end")
		}
	}
}

func (k *talk) say(text string) event.Recorded {
	k.Helper()
	if _, err := k.client.Say(natstest.Context(k), k.ref, event.Input{Text: text}); err != nil {
		k.Fatal(err)
	}
	return k.end()
}

// answers says it until the answer has what is wanted: services learn of plugins a
// moment after the registry. Calls that fail meanwhile are not to trip the breaker.
func (k *talk) answers(text, want string) {
	k.Helper()
	var last string
	natstest.Eventually(k, "the answer to "+text+" has "+want, func() bool {
		if last = k.say(text).Answer; strings.Contains(last, want) {
			return true
		}
		k.say("/reset")
		return false
	})
}

// A storage plugin keeps the agent's notes; without it, nobody says that they were kept.
func TestAStoragePluginKeepsTheNotes(t *testing.T) {
	k := newTalk(t, func(c *system.Config) { c.NotesPlugin = "attic" })
	k.answers("remember the blue bicycle", "failed: adding the note: the storage plugin attic is not available")

	var mu sync.Mutex
	kept := map[string]plugin.StorageRequest{}
	b := k.guest("attic")
	t.Cleanup(b.Close)
	attic := k.startOn(b, manifest("attic"), plugin.Handlers{plugin.StorageBackend{
		Put: func(_ context.Context, r plugin.StorageRequest) error {
			mu.Lock()
			defer mu.Unlock()
			kept[r.Key] = r
			return nil
		},
		Search: func(_ context.Context, r plugin.StorageRequest) ([]plugin.StorageEntry, error) {
			mu.Lock()
			defer mu.Unlock()
			var found []plugin.StorageEntry
			for key, e := range kept {
				if e.Agent == r.Agent && e.Collection == r.Collection && strings.Contains(e.Text, r.Query) {
					found = append(found, plugin.StorageEntry{Key: key, Value: e.Value})
				}
			}
			return found, nil
		},
	}})
	attic.await("active")
	k.answers("remember the blue bicycle", "done")
	r := k.say("recall bicycle")
	if len(r.Actions) != 1 || !r.Actions[0].Success {
		t.Fatalf("%+v", r)
	}
	var found tool.Result
	call := tool.InternalCall{Agent: core.DefaultAgent, Session: k.ref.Session, Caller: "test"}
	for range 5 { // as many as memory:retrieve finds: they leave a place for the note
		call.Tool, call.Args = "memory:store", json.RawMessage(`{"text":"A bicycle has two wheels."}`)
		k.request(subject.Call("test"), coreapi.ServiceName, call, &found)
		if !found.Success {
			t.Fatal(found.Error)
		}
	}
	call.Tool, call.Args = "memory:retrieve", json.RawMessage(`{"query":"bicycle"}`)
	k.request(subject.Call("test"), coreapi.ServiceName, call, &found)
	if !found.Success || !strings.Contains(string(found.Data), `"text":"the blue bicycle","score":0`) {
		t.Errorf("memory:retrieve gives %s, %v", found.Data, found.Error)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(kept) != 1 {
		t.Fatalf("kept is %v", kept)
	}
	for key, e := range kept {
		var n struct{ ID, Text string }
		if json.Unmarshal(e.Value, &n) != nil || n.ID != key || n.Text != "the blue bicycle" ||
			e.Agent != core.DefaultAgent || e.Collection != "notes" {
			t.Errorf("%s: %+v", key, e)
		}
	}
}

// The example of a memory shows the model a note that fits the question, by an internal
// tool that it calls while core waits for its answer.
func TestTheExampleOfAMemory(t *testing.T) {
	k := newTalk(t)
	at, err := k.system.Invite(natstest.Context(t), rights.Local("memory"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, "memory", at)
	k.answers("remember the key is under the mat", "done")
	k.answers("remember Ann likes tea", "done")
	k.say("Where is the key?")
	var last event.Perceived
	natstest.Eventually(t, "the note beside the question", func() bool {
		for _, i := range k.seen {
			if i.Event.Type == event.TypePerceived {
				last = event.Perceived{}
				if err := i.Event.DataAs(&last); err != nil {
					t.Fatal(err)
				}
			}
			if last.Text == "Where is the key?" && len(last.Annotations) > 0 {
				return true
			}
		}
		k.say("Where is the key?")
		return false
	})
	if a := last.Annotations; len(a) != 1 || !strings.HasSuffix(a[0], `not the user's words: "the key is under the mat"`) {
		t.Errorf("the annotations are %q", a)
	}
}

// A system runs; plugins come, are obeyed and used, and go; nothing is left of them.
func TestPluginsOfASystemThatRuns(t *testing.T) {
	k := newTalk(t)
	k.answers("write one.txt", "done")
	k.answers("forecast for Oslo", "no weather:forecast")

	serve := func(m plugin.Manifest, h plugin.Handlers, listeners ...subject.Writer) *served {
		b := k.guest(m.Name, listeners...)
		t.Cleanup(b.Close)
		p := k.startOn(b, m, h)
		p.await("active")
		return p
	}
	asked := make(chan string, 100)
	policy := serve(manifest("policy"), plugin.Handlers{
		plugin.BeforeAct(func(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			asked <- c.Data.Tool
			if r, err := c.CallTool(ctx, "log:record", map[string]string{"message": "asked for " + c.Data.Tool}); err != nil ||
				!r.Success {
				t.Errorf("an internal tool: %+v, %v", r, err)
			}
			if r, err := c.CallTool(ctx, "notes:add", map[string]string{"text": "x"}); err != nil || r.Error == nil ||
				r.Error.Code != tool.CodeDenied {
				t.Errorf("a tool that is not internal: %+v, %v", r, err)
			}
			if c.Data.Tool == "file_system:write_file" {
				return plugin.Deny("nothing is written here"), nil
			}
			return plugin.Continue(), nil
		}),
	})
	type question struct {
		Place string `json:"place"`
		Days  int    `json:"days" default:"1"`
	}
	weather := serve(manifest("weather"), plugin.Handlers{
		plugin.Tool("weather:forecast", "Says what the weather will be.",
			func(ctx context.Context, q question) (string, error) {
				if call, ok := plugin.CallOf(ctx); !ok || call.Session != k.ref.Session || q.Days != 2 {
					t.Errorf("%+v, %+v", call, q)
				}
				return "sun in " + q.Place, nil
			}),
	})
	k.answers("write two.txt", "nothing is written here")
	k.answers("forecast for Oslo", "done")
	if got := <-asked; got != "file_system:write_file" {
		t.Errorf("the policy was asked about %s", got)
	}

	ears := serve(manifest("ears"), plugin.Handlers{
		plugin.Listen("mic", func(ctx context.Context, e *plugin.Emitter) error {
			_, err := e.EmitInput(ctx, k.ref, event.Input{Text: "forecast for Rome"})
			return err
		}),
	}, "mic")
	if r := k.end(); r.Input != "forecast for Rome" || !strings.Contains(r.Answer, "done") {
		t.Errorf("%+v", r)
	}
	for _, p := range []*served{policy, weather, ears} {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
	k.answers("write three.txt", "done")
	k.answers("forecast for Oslo", "no weather:forecast")
}

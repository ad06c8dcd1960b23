package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
)

func nothing(context.Context, struct{}) (any, error) { return nil, nil }

func allow(context.Context, *HookCall[hook.ActData]) (Reply, error) { return Continue(), nil }

func listen(context.Context, *Emitter) error { return nil }

func parrot(_ context.Context, c provider.Call) (provider.Response, error) {
	return provider.Response{TextContent: c.Provider}, nil
}

func everything() Handlers {
	return Handlers{
		BeforeAct(allow, Deadline(500*time.Millisecond), WhenFailing(hook.Deny), InMode(hook.Chain)),
		Tool("a:b", "d", nothing), Provider(provider.Info{Name: "p", Model: "m"}, parrot),
		StorageBackend{
			Put: func(context.Context, StorageRequest) error { return nil },
			Get: func(context.Context, StorageRequest) (json.RawMessage, bool, error) { return nil, false, nil },
		},
		Guide(guide.Guide{Name: "g", SystemPrompt: "be kind"}), Listen("ears", listen), Sense("skin", listen),
		Load(func(context.Context) error { return nil }), Unload(func(context.Context) error { return nil }),
	}
}

func TestTheManifestFollowsFromTheHandlers(t *testing.T) {
	m, err := everything().Complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(m)
	if err != nil || !sameJSON(t, got, `{"name":"test","version":"1.0.0","instance":"",
		"hooks":[{"point":"before_act","mode":"chain","deadline_ms":500,"on_error":"deny"}],
		"tools":[{"name":"a:b","description":"d","args":{"type":"object","properties":{},"additionalProperties":false}}],
		"providers":[{"name":"p","model":"m"}],"storage":{"verbs":["put","get"]},"guides":["g"],
		"listeners":[{"name":"ears"}],"sensors":[{"name":"skin"}]}`) {
		t.Errorf("%s, %v", got, err)
	}
	again, err := everything().Complete(m)
	if err != nil || again.Hash() != m.Hash() {
		t.Errorf("a complete manifest is not complete: %v", err)
	}
}

func TestAManifestWins(t *testing.T) {
	given := Manifest{
		Name: "test", Version: "1.0.0",
		Hooks: []Hook{{Point: hook.BeforeAct, DeadlineMS: 7}},
		Tools: []tool.Spec{{Name: "a:b", Risk: tool.RiskHigh}},
	}
	m, err := Handlers{BeforeAct(allow, Deadline(time.Second)), Tool("a:b", "d", nothing)}.Complete(given)
	if err != nil {
		t.Fatal(err)
	}
	if m.Hooks[0].DeadlineMS != 7 || m.Tools[0].Risk != tool.RiskHigh || m.Tools[0].Description != "d" ||
		len(m.Tools[0].Args) == 0 {
		t.Errorf("%+v", m)
	}
	if given.Tools[0].Description != "" {
		t.Error("the given manifest was changed")
	}
}

func TestManifestAndHandlersMustMatch(t *testing.T) {
	declared := Manifest{
		Hooks: []Hook{{Point: hook.AfterAct}}, Tools: []tool.Spec{{Name: "x", Description: "d", Args: json.RawMessage(`{}`)}},
		Providers: []provider.Info{{Name: "q", Model: "m"}}, Storage: &Storage{Verbs: []StorageVerb{Put, Delete}},
		Guides:    []string{"h"},
		Listeners: []Listener{{Name: "eyes"}}, Sensors: []Listener{},
	}
	declared.Name, declared.Version = "test", "1.0.0"
	_, err := everything().Complete(declared)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`hooks[0].point: "after_act" is declared, but has no handler`,
		`hooks: "before_act" has a handler, but the manifest does not declare it`,
		`tools[0].name: "x" is declared`, `tools: "a:b" has a handler`, `providers[0].name: "q" is declared`,
		`providers: "p" has a handler`,
		`storage.verbs[1]: "delete" is declared`, `storage.verbs: "get" has a handler`, `guides[0]: "h" is declared`,
		`guides: "g" has a handler`,
		`listeners[0].name: "eyes" is declared`, `listeners: "ears" has a handler`, `sensors: "skin" has a handler`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%s", want, strings.ReplaceAll(err.Error(), "; ", "\n"))
		}
	}
}

func TestWrongHandlersAreNamed(t *testing.T) {
	for want, h := range map[string]Handlers{
		`tools: more than one handler for "a:b"`:        {Tool("a:b", "d", nothing), Tool("a:b", "e", nothing)},
		`hooks: more than one handler for "before_act"`: {BeforeAct(allow), BeforeAct(allow)},
		`storage: has 2 handlers`:                       {StorageBackend{}, StorageBackend{}},
		`storage.verbs: is missing`:                     {StorageBackend{}},
		`tools: the handler for "a:b" is nil`:           {Tool[struct{}, int]("a:b", "d", nil)},
		`tools: cannot derive a schema for the arguments of "a:b": field children[]: plugin.node is recursive`: {
			Tool("a:b", "d", func(context.Context, node) (int, error) { return 0, nil }),
		},
		`hooks: the handler for before_act is nil`:       {BeforeAct(nil)},
		`hooks: the handler for on_error is nil`:         {OnError(nil)},
		`providers: the handler for "p" is nil`:          {Provider(provider.Info{Name: "p"}, nil)},
		`guides: the handler for "g" is nil`:             {GuideFunc("g", nil)},
		`guides: guide "g": temperature 9 is outside`:    {Guide(guide.Guide{Name: "g", Temperature: new(9.0)})},
		`listeners: the handler for "l" is nil`:          {Listen("l", nil)},
		`sensors: the handler for "l" is nil`:            {Sense("l", nil)},
		`listeners[0].name: "core" is reserved for core`: {Listen("core", listen)},
		`hooks[0].deadline_ms: is 61000`:                 {BeforeAct(allow, Deadline(61*time.Second))},
	} {
		if _, err := h.Complete(Manifest{Name: "test", Version: "1.0.0"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	err := Serve(t.Context(), Manifest{Name: "a.b", Version: "one"}, nil)
	var all Problems
	if !errors.As(err, &all) || len(all) != 2 {
		t.Errorf("%v, want the two problems of the manifest, and no connection", err)
	}
}

func TestAProviderAnswers(t *testing.T) {
	h := Handlers{
		Provider(provider.Info{Name: "one", Model: "m"}, func(_ context.Context, c provider.Call) (provider.Response, error) {
			return provider.Response{TextContent: "from one"}, nil
		}),
		Provider(provider.Info{Name: "two", Model: "m"},
			func(ctx context.Context, c provider.Call) (provider.Response, error) {
				switch c.Plan {
				case "calls":
					return provider.Response{
						ToolCalls: []provider.ToolCall{{ID: "1", Tool: "x", Args: json.RawMessage(`{}`)}}, IsFinal: true,
					}, nil
				case "auth":
					return provider.Response{}, &provider.Error{Code: provider.ErrAuth, Message: "no key"}
				case "slow":
					<-ctx.Done()
					return provider.Response{}, ctx.Err()
				case "panic":
					panic("oh")
				case "error":
					return provider.Response{}, errors.New("broken")
				}
				return provider.Response{}, nil
			}),
	}
	m, p, err := h.complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	ask := p.endpoints(m, quiet)[0].answer
	for _, c := range []struct{ provider, plan, want string }{
		{"", "", `{"response":{"is_final":true,"text_content":"from one","usage":{"input_tokens":0,"output_tokens":0}}}`},
		{
			"two", "calls",
			`{"response":{"is_final":false,"tool_calls":[{"id":"1","tool":"x","args":{}}],"usage":{"input_tokens":0,"output_tokens":0}}}`,
		},
		{"two", "", `{"error":{"code":"garbage","message":"the model returned neither text nor a call","retryable":true}}`},
		{"two", "auth", `{"error":{"code":"auth","message":"no key","retryable":false}}`},
		{"two", "slow", `{"error":{"code":"timeout","message":"context deadline exceeded","retryable":true}}`},
		{"two", "panic", `{"error":{"code":"internal","message":"the handler of provider two panicked","retryable":false}}`},
		{"two", "error", `{"error":{"code":"internal","message":"broken","retryable":false}}`},
	} {
		synctest.Test(t, func(t *testing.T) { // the minute of the slow one passes at once
			body, err := json.Marshal(provider.Call{Plan: c.plan, Provider: c.provider, Deadline: inAMinute()})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ask(t.Context(), body, nil); err != nil || !sameJSON(t, got, c.want) {
				t.Errorf("%+v: %s, %v", c, got, err)
			}
		})
	}
	if _, err := ask(t.Context(), []byte(`{"provider":"three"}`), nil); !errors.Is(err, bus.ErrNotFound) {
		t.Error(err)
	}
}

func TestGuidesAnswer(t *testing.T) {
	h := Handlers{
		Guide(guide.Guide{Name: "kind", SystemPrompt: "be kind"}),
		GuideFunc("odd", func(_ context.Context, r guide.Request) (guide.Guide, error) {
			return guide.Guide{
				SystemPrompt: "you serve " + string(r.Agent),
				MemoryPolicy: guide.MemoryPolicy(map[bool]string{true: "gossip"}[r.Agent == "bad"]),
			}, nil
		}),
	}
	m, p, err := h.complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	ask := p.endpoints(m, quiet)[0].answer
	for body, want := range map[string]string{
		`{"name":"kind","agent":"demo"}`: `{"name":"kind","system_prompt":"be kind"}`,
		`{"name":"odd","agent":"demo"}`:  `{"name":"odd","system_prompt":"you serve demo"}`,
	} {
		if got, err := ask(t.Context(), []byte(body), nil); err != nil || !sameJSON(t, got, want) {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
	if _, err := ask(t.Context(), []byte(`{"name":"none","agent":"demo"}`), nil); !errors.Is(err, bus.ErrNotFound) {
		t.Error(err)
	}
	if _, err := ask(t.Context(), []byte(`{"name":"odd","agent":"bad"}`), nil); err == nil ||
		!strings.Contains(err.Error(), "memory_policy") {
		t.Error(err)
	}
}

func TestAStorageBackendAnswers(t *testing.T) {
	kept := map[string]json.RawMessage{}
	h := StorageBackend{
		Put: func(_ context.Context, r StorageRequest) error { kept[r.Key] = r.Value; return nil },
		Get: func(_ context.Context, r StorageRequest) (json.RawMessage, bool, error) {
			v, ok := kept[r.Key]
			return v, ok, nil
		},
		Delete: func(_ context.Context, r StorageRequest) error { delete(kept, r.Key); return nil },
		Search: func(_ context.Context, r StorageRequest) ([]StorageEntry, error) {
			return make([]StorageEntry, r.Limit+1), nil
		},
	}
	m, p, err := Handlers{h}.complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]answerFunc{}
	for _, e := range p.endpoints(m, quiet) {
		at[strings.TrimPrefix(e.subject, "storage.test.")] = e.answer
	}
	const who = `"agent":"demo","collection":"c"`
	for _, c := range []struct{ verb, body, want string }{
		{"put", `{"verb":"put",` + who + `,"key":"k","value":[1]}`, `{}`},
		{"get", `{"verb":"get",` + who + `,"key":"k"}`, `{"found":true,"value":[1]}`},
		{"delete", `{"verb":"delete",` + who + `,"key":"k"}`, `{}`},
		{"get", `{"verb":"get",` + who + `,"key":"k"}`, `{}`},
		{"search", `{"verb":"search",` + who + `,"query":"q","limit":1}`, `{"entries":[{"key":"","value":null}]}`},
	} {
		if got, err := at[c.verb](t.Context(), []byte(c.body), nil); err != nil || !sameJSON(t, got, c.want) {
			t.Errorf("%s: %s, %v", c.body, got, err)
		}
	}
	got, err := at["search"](t.Context(), []byte(`{"verb":"search",`+who+`,"query":"q"}`), nil)
	var found StorageReply
	if err != nil || json.Unmarshal(got, &found) != nil || len(found.Entries) != DefaultSearchLimit {
		t.Errorf("%s, %v", got, err)
	}
	for _, c := range []struct{ verb, body, want string }{
		{"put", `{"verb":"get",` + who + `,"key":"k"}`, "verb"},
		{"put", `{"verb":"put",` + who + `,"key":"k"}`, "value"},
		{"get", `{"verb":"get",` + who + `}`, "key"},
		{"get", `{"verb":"get","agent":"a.b","collection":"c","key":"k"}`, "agent"},
		{"get", `{"verb":"get","agent":"a","collection":"","key":"k"}`, "collection"},
		{"search", `{"verb":"search",` + who + `}`, "query"},
		{"search", `{"verb":"search",` + who + `,"query":"q","limit":1001}`, "limit"},
		{"get", `[]`, "request"},
	} {
		if _, err := at[c.verb](t.Context(), []byte(c.body), nil); !errors.Is(err, bus.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %s", c.body, err, c.want)
		}
	}
}

func TestTheEnvironmentSaysWhereTheBusIs(t *testing.T) {
	vars := map[string]string{
		"SKANDHA_NATS": "nats://bus:1", "SKANDHA_DATA": "d", "SKANDHA_TOKEN": "t", "SKANDHA_CREDS": "c",
		"SKANDHA_TLS_CA": "ca",
	}
	c := envConfig(func(k string) string { return vars[k] })
	if c.URL != "nats://bus:1" || c.Data != "d" || c.Token != "t" || c.CredsFile != "c" || c.TLS.CA != "ca" {
		t.Errorf("%+v", c)
	}
	if c := envConfig(func(string) string { return "" }); c.URL != "nats://127.0.0.1:4222" || c.Token != "" {
		t.Errorf("%+v", c)
	}
}

func TestPausesGrowAndEnd(t *testing.T) {
	var b backoff
	longest := time.Duration(0)
	for i := range 20 {
		d := b.next()
		longest = max(longest, d)
		if d < firstPause/2 || d > lastPause {
			t.Errorf("pause %d is %v", i, d)
		}
	}
	if longest < lastPause/2 {
		t.Errorf("the longest is %v", longest)
	}
}

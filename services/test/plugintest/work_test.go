package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/test/natstest"
)

type count struct {
	N int `json:"n"`
}

func TestEveryKindOfPluginAnswers(t *testing.T) {
	r := newRig(t)
	r.active(manifest("all"), plugin.Handlers{
		deny("no"),
		plugin.Tool("all:it", "d", func(_ context.Context, c count) (int, error) { return c.N + 1, nil }),
		plugin.Provider(provider.Info{Name: "p", Model: "m"},
			func(context.Context, provider.Call) (provider.Response, error) {
				return provider.Response{TextContent: "hello"}, nil
			}),
		plugin.StorageBackend{Get: func(context.Context, plugin.StorageRequest) (json.RawMessage, bool, error) {
			return json.RawMessage(`1`), true, nil
		}},
		plugin.Guide(guide.Guide{Name: "kind", SystemPrompt: "be kind"}),
	})
	for _, c := range []struct{ subject, body, want string }{
		{
			subject.Hook("before_act", "all"),
			`{"invocation_id":"i","point":"before_act","data":{"call":"c","tool":"x","args":{}}}`,
			`{"verb":"deny","reason":"no"}`,
		},
		{
			subject.Tool("all", "all:it"), `{"call":"t1-p1-c0","attempt":"a","tool":"all:it","args":{"n":1}}`,
			`{"success":true,"data":2}`,
		},
		{
			subject.Generate("all"), `{"plan":"t1-p1"}`,
			`{"response":{"is_final":true,"text_content":"hello","usage":{"input_tokens":0,"output_tokens":0}}}`,
		},
		{
			subject.Storage("all", "get"), `{"verb":"get","agent":"demo","collection":"c","key":"k"}`,
			`{"found":true,"value":1}`,
		},
		{subject.Guide("all"), `{"name":"kind","agent":"demo"}`, `{"name":"kind","system_prompt":"be kind"}`},
	} {
		got, err := r.ask.Request(natstest.Context(t), c.subject, "all", []byte(c.body))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s (%v), want %s", c.subject, got, err, c.want)
		}
	}
}

func TestAThousandCallsAtOnceRunOnceEach(t *testing.T) {
	r := newRig(t)
	var ran atomic.Int64
	r.active(manifest("many"), plugin.Handlers{
		plugin.Tool("many:it", "d", func(_ context.Context, c count) (int, error) { ran.Add(1); return c.N, nil }),
	}, plugin.Concurrency(16))
	ctx := natstest.Context(t)
	var g sync.WaitGroup
	for i := range 2000 { // each twice
		g.Go(func() {
			n := i % 1000
			res, err := r.call(ctx, "many", fmt.Sprintf("t1-p1-c%d", n), fmt.Sprintf(`{"n":%d}`, n))
			if err != nil || string(res.Data) != fmt.Sprint(n) {
				t.Errorf("call %d: %+v, %v", n, res, err)
			}
		})
	}
	g.Wait()
	if ran.Load() != 1000 {
		t.Errorf("it ran %d times", ran.Load())
	}
}

func TestReplicasShareTheWork(t *testing.T) {
	r := newRig(t)
	var ran [3]atomic.Int64
	for i := range ran {
		r.active(manifest("shared"), plugin.Handlers{
			plugin.Tool("shared:it", "d", func(context.Context, struct{}) (int, error) { ran[i].Add(1); return 0, nil }),
		})
	}
	if r.desk.leases("shared") != 3 {
		t.Fatalf("%d replicas", r.desk.leases("shared"))
	}
	for i := range 200 {
		if _, err := r.call(natstest.Context(t), "shared", fmt.Sprintf("t1-p1-c%d", i), `{}`); err != nil {
			t.Fatal(err)
		}
	}
	sum := int64(0)
	for i := range ran {
		sum += ran[i].Load()
		if ran[i].Load() == 0 {
			t.Errorf("replica %d had nothing to do", i)
		}
	}
	if sum != 200 {
		t.Errorf("%d runs", sum)
	}
}

func TestALargeResultIsFetched(t *testing.T) {
	r := newRig(t)
	r.active(manifest("large"), plugin.Handlers{
		plugin.Tool("large:it", "d",
			func(_ context.Context, c count) (string, error) { return strings.Repeat("x", c.N), nil }),
	})
	res, err := r.call(natstest.Context(t), "large", "t1-p1-c0", `{"n":3000000}`)
	if err != nil || len(res.Data) != 3000002 {
		t.Errorf("%d bytes, %v", len(res.Data), err)
	}
	res, err = r.call(natstest.Context(t), "large", "t1-p1-c1", fmt.Sprintf(`{"n":%d}`, plugin.MaxResult))
	if err != nil || res.Error == nil || res.Error.Code != tool.CodeTooLarge {
		t.Errorf("%d bytes, %v, %v", len(res.Data), res.Error, err)
	}
}

func TestAPanicHurtsOneCallAlone(t *testing.T) {
	r := newRig(t)
	p := r.active(manifest("odd"), plugin.Handlers{
		plugin.Tool("odd:it", "d", func(_ context.Context, c count) (int, error) {
			if c.N%2 == 0 {
				panic("even")
			}
			return c.N, nil
		}),
	})
	for i := range 20 {
		res, err := r.call(natstest.Context(t), "odd", fmt.Sprintf("t1-p1-c%d", i), fmt.Sprintf(`{"n":%d}`, i))
		if err != nil || res.Success != (i%2 == 1) || !res.Success && res.Error.Code != tool.CodeInternal {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
	if p.log.count("even") != 10 {
		t.Errorf("%d panics were logged", p.log.count("even"))
	}
}

// What waits behind a full house until its deadline is answered, and never runs.
func TestADeadlineThatPassesBeforeTheTurnComes(t *testing.T) {
	r := newRig(t)
	var ran atomic.Int64
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	r.active(manifest("slow"), plugin.Handlers{
		plugin.Tool("slow:it", "d", func(context.Context, struct{}) (int, error) {
			ran.Add(1)
			begun <- struct{}{}
			<-finish
			return 0, nil
		}),
	}, plugin.Concurrency(1))
	var g sync.WaitGroup
	g.Go(func() {
		if _, err := r.call(natstest.Context(t), "slow", "t1-p1-c0", `{}`); err != nil {
			t.Error(err)
		}
	})
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.call(ctx, "slow", "t1-p1-c1", `{}`); !errors.Is(err, bus.ErrTimeout) {
		t.Error(err)
	}
	close(finish)
	g.Wait()
	if _, err := r.call(natstest.Context(t), "slow", "t1-p1-c2", `{}`); err != nil || ran.Load() != 2 {
		t.Errorf("it ran %d times, %v", ran.Load(), err)
	}
}

func TestWhatRunsIsFinishedBeforeThePluginGoes(t *testing.T) {
	r := newRig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	p := r.active(manifest("slow"), plugin.Handlers{
		plugin.Tool("slow:it", "d", func(ctx context.Context, _ struct{}) (string, error) {
			close(begun)
			<-finish
			return "done", ctx.Err()
		}),
	})
	answer := make(chan tool.Result, 1)
	go func() {
		res, err := r.call(natstest.Context(t), "slow", "t1-p1-c0", `{}`)
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	<-begun
	p.cancel()
	p.await("draining")
	r.desk.await(subject.Heartbeat, 3) // so that it is not given up for dead
	if r.desk.leases("slow") != 1 {
		t.Error("the lease was given up while a call ran")
	}
	close(finish)
	if res := <-answer; string(res.Data) != `"done"` {
		t.Errorf("%+v", res)
	}
	if err := p.end(); err != nil || r.desk.leases("slow") != 0 {
		t.Errorf("%v; %d leases", err, r.desk.leases("slow"))
	}
}

// Serve gives up on a handler that heeds nothing, and says so.
func TestAHandlerThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	r := newRig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	ignored := make(chan struct{})
	p := r.active(manifest("deaf"), plugin.Handlers{
		plugin.Tool("deaf:it", "d", func(ctx context.Context, _ struct{}) (int, error) {
			close(begun)
			<-ctx.Done() // its context does end
			close(ignored)
			<-finish
			return 0, nil
		}),
	}, plugin.DrainTimeout(2*time.Second))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = r.call(natstest.Context(t), "deaf", "t1-p1-c0", `{}`)
	}()
	<-begun
	err := p.stop()
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "tool.deaf.deaf--it") {
		t.Errorf("%v, want that the tool was not drained", err)
	}
	<-ignored
	if r.desk.leases("deaf") != 0 {
		t.Error("the lease is kept")
	}
	close(finish)
	<-gone
}

// A request that wants its answer elsewhere would have the plugin publish with its
// own rights where the sender likes.
func TestAPluginAnswersUnderItsOwnNameAlone(t *testing.T) {
	r := newRig(t)
	var ran atomic.Int64
	r.active(manifest("own"), plugin.Handlers{
		plugin.Tool("own:it", "d", func(context.Context, struct{}) (int, error) { ran.Add(1); return 0, nil }),
	})
	for _, reply := range []string{"agent.demo.s1.commit", "reply.me.other.me-1.1"} {
		if err := r.bus.Conn().PublishRequest(subject.Tool("own", "own:it"), reply,
			[]byte(`{"call":"t1-p1-c0","attempt":"a","tool":"own:it","args":{}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.call(natstest.Context(t), "own", "t1-p1-c1", `{}`); err != nil || ran.Load() != 1 {
		t.Errorf("it ran %d times, %v", ran.Load(), err)
	}
}

func TestNothingLeaks(t *testing.T) {
	r := newRig(t)
	b := r.dial()
	cycle := func(n int) {
		for i := range n {
			p := r.startOn(b, manifest("leak"), plugin.Handlers{
				deny("no"),
				plugin.Tool("leak:it", "d", func(context.Context, struct{}) (int, error) { return 0, nil }),
				plugin.Listen("leak", func(ctx context.Context, _ *plugin.Emitter) error { <-ctx.Done(); return nil }),
			})
			p.await("active")
			if _, err := r.call(natstest.Context(t), "leak", fmt.Sprintf("t1-p1-c%d", i), `{}`); err != nil {
				t.Fatal(err)
			}
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cycle(1)
	subscriptions, goroutines := b.Conn().NumSubscriptions(), runtime.NumGoroutine()
	cycle(10)
	natstest.Eventually(t, "all is released", func() bool {
		return b.Conn().NumSubscriptions() <= subscriptions && runtime.NumGoroutine() <= goroutines
	})
}

// Core and models get schemas that compile, and what fits them decodes.
func TestSchemasCompileAndFit(t *testing.T) {
	type place struct {
		City string `json:"city" min:"1"`
		Zip  string `json:"zip,omitempty"`
	}
	type everything struct {
		Place  place             `json:"place"`
		Places []*place          `json:"places,omitempty" max:"3"`
		Names  map[string]place  `json:"names,omitempty"`
		At     time.Time         `json:"at,omitzero"`
		Unit   string            `json:"unit" enum:"c,f" default:"c"`
		Days   uint8             `json:"days" default:"2" max:"7"`
		Pair   [2]float64        `json:"pair" default:"[0,1]"`
		Tags   []string          `json:"tags,omitempty" enum:"a,b"`
		Raw    json.RawMessage   `json:"raw,omitempty"`
		Blob   []byte            `json:"blob,omitempty"`
		Other  map[string]string `json:"other,omitempty"`
	}
	var got everything
	m, err := plugin.Handlers{plugin.Tool("t:it", "d", func(_ context.Context, e everything) (int, error) {
		got = e
		return 0, nil
	})}.Complete(manifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := toolschema.Compile(m.Tools[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		`{}`, `{"place":{}}`, `{"place":{"city":""}}`, `{"place":{"city":"x"},"unit":"k"}`, `{"place":{"city":"x"},"days":8}`,
		`{"place":{"city":"x"},"extra":1}`, `{"place":{"city":"x"},"pair":[1]}`, `{"place":{"city":"x"},"tags":["c"]}`,
		`{"place":{"city":"x"},"at":"now"}`,
	} {
		if _, errs := v.Validate(json.RawMessage(bad)); errs == nil {
			t.Errorf("%s fits", bad)
		}
	}
	args, errs := v.Validate(json.RawMessage(`{"place":{"city":"Oslo"},"places":[{"city":"Rom"}],"names":{"x":{"city":"y"}},"at":"2026-11-21T08:30:00Z","tags":["a"],"raw":[1],"blob":"aGk="}`))
	if errs != nil {
		t.Fatal(errs)
	}
	r := newRig(t)
	r.active(manifest("t"), plugin.Handlers{plugin.Tool("t:it", "d", func(_ context.Context, e everything) (int, error) {
		got = e
		return 0, nil
	})})
	if res, err := r.call(natstest.Context(t), "t", "t1-p1-c0", string(args)); err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
	if got.Place.City != "Oslo" || got.Places[0].City != "Rom" || got.Unit != "c" || got.Days != 2 || got.Pair[1] != 1 ||
		string(got.Blob) != "hi" || got.At.Year() != 2026 {
		t.Errorf("%+v", got)
	}
}

func TestHooksAreToldTheirDeadline(t *testing.T) {
	r := newRig(t)
	deadlines := make(chan time.Time, 2)
	var wait atomic.Bool
	r.active(manifest("policy"), plugin.Handlers{
		plugin.BeforeAct(func(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			at, _ := ctx.Deadline()
			deadlines <- at
			if wait.Load() {
				<-ctx.Done()
			}
			return plugin.Continue(), ctx.Err()
		}),
	})
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if _, err := r.hook(ctx, "in time"); err != nil {
		t.Error(err)
	}
	if at, _ := ctx.Deadline(); (<-deadlines).After(at) {
		t.Errorf("it had until after %v", at)
	}
	wait.Store(true)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.hook(ctx, "too late"); !errors.Is(err, bus.ErrTimeout) { // whether or not it was still asked
		t.Error(err)
	}
}

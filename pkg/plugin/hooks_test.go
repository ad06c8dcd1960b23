package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
)

var quiet = &runtime{log: slog.New(slog.DiscardHandler)}

// bound is the answering function of the one capability of a handler.
func bound(t *testing.T, h Handler) func(context.Context, []byte) ([]byte, error) {
	t.Helper()
	m, p, err := Handlers{h}.complete(Manifest{Name: "test", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	places := p.endpoints(m, quiet)
	if len(places) != 1 {
		t.Fatalf("%d subjects", len(places))
	}
	return func(ctx context.Context, body []byte) ([]byte, error) { return places[0].answer(ctx, body, func() {}) }
}

func envelope(t *testing.T, p hook.Point, id string, data any) []byte {
	t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(hook.Envelope{
		InvocationID: id, Point: p, Plugin: "test", Agent: "demo", Session: "s1", Deadline: time.Now().Add(time.Minute),
		Data: raw,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

var act = hook.ActData{Call: "t1-p1-c0", Tool: "x", Args: json.RawMessage(`{}`)}

func TestRepliesCrossTheBus(t *testing.T) {
	for want, r := range map[string]Reply{
		`{"verb":"continue"}`:                                {},
		`{"verb": "continue"}`:                               Continue(),
		`{"verb":"stop"}`:                                    Stop(),
		`{"verb":"deny","reason":"no"}`:                      Deny("no"),
		`{"verb":"deny","reason":"denied without a reason"}`: Deny(""),
		`{"verb":"replace","data":{"call":"t1-p1-c0","tool":"x","args":{}}}`:  Replace(act),
		`{"verb":"replace", "data":{"call":"t1-p1-c0","tool":"x","args":{}}}`: Replace(&act),
		`{"verb":"answer","data":[1,2]}`:                                      Answer([]int{1, 2}),
		`{"verb":"answer","data":null}`:                                       Answer(nil),
		`{"verb":"confirm","warning":{"level":"critical","message":"sure?"}}`: Confirm(hook.LevelCritical, "sure?"),
		`{"verb":"confirm","warning":{"level":"warn","message":"sure?"}}`:     Confirm("", "sure?"),
	} {
		out, err := r.wire(hook.BeforeAct, reflect.TypeFor[hook.ActData]())
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		got, err := json.Marshal(out)
		if err != nil || !sameJSON(t, got, want) {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
	}
}

func TestRepliesThatMakeNoSenseAreErrors(t *testing.T) {
	for want, c := range map[string]struct {
		p hook.Point
		r Reply
	}{
		"replace at before_act requires a hook.ActData, got a hook.SenseData": {hook.BeforeAct, Replace(hook.SenseData{})},
		"got a <nil>":                                {hook.BeforeAct, Replace(nil)},
		"confirm has no message":                     {hook.BeforeAct, Confirm(hook.LevelInfo, "")},
		"confirm is not valid at after_act":          {hook.AfterAct, Confirm(hook.LevelInfo, "?")},
		"answer is not valid at before_plan":         {hook.BeforePlan, Answer(1)},
		"deny is not valid at before_reflect":        {hook.BeforeReflect, Deny("no")},
		"answer: the data cannot be encoded as JSON": {hook.BeforeAct, Answer(make(chan int))},
	} {
		if _, err := c.r.wire(c.p, reflect.TypeFor[hook.ActData]()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestEveryPointHasAHandler(t *testing.T) {
	fine := func(any) error { return nil }
	all := map[hook.Point]Handler{
		hook.OnAgentStart: OnAgentStart(func(_ context.Context, c *HookCall[hook.AgentData]) error { return fine(c) }),
		hook.BeforeSense: BeforeSense(
			func(context.Context, *HookCall[hook.SenseData]) (Reply, error) { return Stop(), nil }),
		hook.AfterSense: AfterSense(
			func(context.Context, *HookCall[hook.PerceptionsData]) (Reply, error) { return Stop(), nil }),
		hook.BeforePlan: BeforePlan(func(context.Context, *HookCall[hook.PlanData]) (Reply, error) { return Stop(), nil }),
		hook.AfterPlan:  AfterPlan(func(context.Context, *HookCall[hook.AfterPlanData]) (Reply, error) { return Stop(), nil }),
		hook.BeforeAct:  BeforeAct(func(context.Context, *HookCall[hook.ActData]) (Reply, error) { return Stop(), nil }),
		hook.AfterAct:   AfterAct(func(context.Context, *HookCall[hook.AfterActData]) (Reply, error) { return Stop(), nil }),
		hook.BeforeReflect: BeforeReflect(
			func(context.Context, *HookCall[hook.ReflectData]) (Reply, error) { return Stop(), nil }),
		hook.AfterReflect: AfterReflect(func(_ context.Context, c *HookCall[hook.ReflectData]) error { return fine(c) }),
		hook.OnError:      OnError(func(_ context.Context, c *HookCall[hook.ErrorData]) error { return fine(c) }),
		hook.OnAgentStop:  OnAgentStop(func(_ context.Context, c *HookCall[hook.AgentData]) error { return fine(c) }),
	}
	for _, p := range hook.Points() {
		if all[p] == nil {
			t.Errorf("nothing handles %s", p)
			continue
		}
		body, err := bound(t, all[p])(t.Context(), envelope(t, p, "i1", struct{}{}))
		if err != nil || !strings.Contains(string(body), `"verb"`) {
			t.Errorf("%s: %s, %v", p, body, err)
		}
	}
}

func TestAHookGetsItsPointsData(t *testing.T) {
	ask := bound(t, BeforeAct(func(ctx context.Context, c *HookCall[hook.ActData]) (Reply, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		if c.Session != "s1" || c.Data.Tool != "x" || c.Point != hook.BeforeAct {
			t.Errorf("%+v", c)
		}
		c.Data.Args = json.RawMessage(`{"a":1}`)
		return Replace(c.Data), nil
	}))
	body, err := ask(t.Context(), envelope(t, hook.BeforeAct, "i", act))
	if err != nil || !strings.Contains(string(body), `"args":{"a":1}`) {
		t.Errorf("%s, %v", body, err)
	}
}

func TestWhatAHookCannotReadIsRefused(t *testing.T) {
	ask := bound(t, BeforeAct(func(context.Context, *HookCall[hook.ActData]) (Reply, error) {
		t.Error("it was called")
		return Continue(), nil
	}))
	for what, body := range map[string][]byte{
		"no envelope":     []byte(`[]`),
		"another point":   envelope(t, hook.AfterAct, "i", act),
		"data of no kind": envelope(t, hook.BeforeAct, "i", "text"),
	} {
		if _, err := ask(t.Context(), body); !errors.Is(err, bus.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	huge := bound(t, BeforeAct(func(context.Context, *HookCall[hook.ActData]) (Reply, error) {
		return Answer(strings.Repeat("x", hook.MaxReply)), nil
	}))
	if _, err := huge(t.Context(), envelope(t, hook.BeforeAct, "i", act)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a huge answer: %v", err)
	}
	late, err := json.Marshal(hook.Envelope{
		InvocationID: "i", Point: hook.BeforeAct, Deadline: time.Now().Add(-time.Second), Data: json.RawMessage(`{}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context(), late); bus.CodeOf(err) != bus.CodeTimeout {
		t.Errorf("late: %v", err)
	}
}

// The same question is answered once; the same invocation with other data, or one
// that failed, is asked anew.
func TestAnInvocationIsAnsweredOnce(t *testing.T) {
	calls := 0
	ask := bound(t, BeforeAct(func(_ context.Context, c *HookCall[hook.ActData]) (Reply, error) {
		calls++
		if c.Data.Tool == "fails" {
			return Reply{}, errors.New("not today")
		}
		return Deny("no " + c.Data.Tool), nil
	}))
	for i, c := range []struct {
		id, tool string
		calls    int
	}{{"1", "x", 1}, {"1", "x", 1}, {"2", "x", 2}, {"1", "y", 3}, {"1", "x", 3}, {"3", "fails", 4}, {"3", "fails", 5}} {
		data := act
		data.Tool = c.tool
		_, err := ask(t.Context(), envelope(t, hook.BeforeAct, c.id, data))
		if calls != c.calls || (err != nil) != (c.tool == "fails") {
			t.Errorf("question %d: %d calls, %v", i, calls, err)
		}
	}
}

func TestAHooksPanicIsAnError(t *testing.T) {
	ask := bound(t, BeforeAct(func(context.Context, *HookCall[hook.ActData]) (Reply, error) { panic("secret") }))
	_, err := ask(t.Context(), envelope(t, hook.BeforeAct, "1", act))
	if !errors.Is(err, bus.ErrInternal) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func asking(key string) question { return question{key: key, yield: func() {}} }

func TestAMemoIsBounded(t *testing.T) {
	m := newMemo()
	for i := range memoAnswers + 10 {
		if _, err := m.do(t.Context(), asking(string(rune('A'+i))),
			func() ([]byte, error) { return make([]byte, 100), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.answers) != memoAnswers || len(m.order) != memoAnswers || m.bytes != 100*memoAnswers {
		t.Errorf("%d answers, %d bytes", len(m.answers), m.bytes)
	}
	for _, key := range []string{"big", "bigger"} {
		if _, err := m.do(t.Context(), asking(key),
			func() ([]byte, error) { return make([]byte, memoBytes), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.answers) != 1 || m.bytes != memoBytes {
		t.Errorf("%d answers, %d bytes", len(m.answers), m.bytes)
	}
}

func TestWhoAsksMeanwhileWaits(t *testing.T) {
	m := newMemo()
	begun, finish := make(chan struct{}), make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		_, _ = m.do(t.Context(), asking("k"), func() ([]byte, error) {
			close(begun)
			<-finish
			return []byte("once"), nil
		})
	})
	<-begun
	twice := errors.New("computed twice")
	never := func() ([]byte, error) { return []byte("twice"), twice }
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.do(impatient, asking("k"), never); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	g.Go(func() {
		if b, err := m.do(t.Context(), asking("k"), never); string(b) != "once" || err != nil {
			t.Errorf("%s, %v", b, err)
		}
	})
	close(finish)
	g.Wait()
	func() {
		defer func() { _ = recover() }()
		_, _ = m.do(t.Context(), asking("p"), func() ([]byte, error) { panic("x") })
	}()
	if b, err := m.do(t.Context(), asking("p"),
		func() ([]byte, error) { return []byte("again"), nil }); string(b) != "again" || err != nil {
		t.Errorf("after a panic: %s, %v", b, err)
	}
}

func TestAnInternalToolIsCalledOverTheBusAlone(t *testing.T) {
	if _, err := (&HookCall[hook.PlanData]{}).CallTool(t.Context(), "memory:retrieve", nil); err == nil ||
		!strings.Contains(err.Error(), "not called over the bus") {
		t.Errorf("got %v", err)
	}
}

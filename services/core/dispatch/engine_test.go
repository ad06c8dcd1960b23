package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/test/natstest"
)

var _ decide.Hooks = (*dispatch.HookSet)(nil)

var envelope = hook.Envelope{
	Point: hook.BeforeAct, Agent: "a", Session: "s", Turn: "t1", Step: "t1-p1-c0",
	Data: json.RawMessage(`{"call":"t1-p1-c0","tool":"rm","args":{"path":"/"}}`),
}

// plugins answer in the test's own process.
type plugins map[subject.Plugin]func(ctx context.Context, e hook.Envelope) (string, error)

func (p plugins) ask(ctx context.Context, questions []bus.Question) []bus.Answer {
	out := make([]bus.Answer, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			own, cancel := context.WithDeadline(ctx, q.Deadline)
			defer cancel()
			out[i].Data, out[i].Err = p.one(own, q)
			out[i].At = time.Now()
		})
	}
	wg.Wait()
	return out
}

func (p plugins) one(ctx context.Context, q bus.Question) ([]byte, error) {
	var e hook.Envelope
	if err := json.Unmarshal(q.Body, &e); err != nil {
		return nil, err
	}
	if want := subject.Hook(string(e.Point), e.Plugin); q.Subject != want || q.Responder != string(e.Plugin) {
		return nil, fmt.Errorf("asked on %s as %s", q.Subject, q.Responder)
	}
	r, err := p[e.Plugin](ctx, e)
	return []byte(r), err
}

func says(reply string) func(context.Context, hook.Envelope) (string, error) {
	return func(context.Context, hook.Envelope) (string, error) { return reply, nil }
}

func hangs(ctx context.Context, _ hook.Envelope) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func engine(p plugins) *dispatch.Engine { return dispatch.New(dispatch.Config{Ask: p.ask}) }

// A plugin that is about to reconnect is waited for while its lease lasts, so that no call
// gets past it; one whose lease has ended is not.
func TestAnAbsentPluginIsWaitedForWhileItsLeaseLasts(t *testing.T) {
	for _, judge := range []bool{false, true} {
		for _, back := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var e *dispatch.Engine
				asked := 0
				e = engine(plugins{"p": func(context.Context, hook.Envelope) (string, error) {
					if asked++; asked < 5 {
						return "", fmt.Errorf("%w: nobody listens", dispatch.ErrAbsent)
					}
					if !back {
						e.Set(e.NewHookSet(nil, nil)) // its lease has ended
						return "", dispatch.ErrAbsent
					}
					return `{"verb":"deny","reason":"it is back"}`, nil
				}})
				hooks := at(hook.BeforeAct, hook.Chain, "p")
				hooks[0].Judge, hooks[0].OnSilence = judge, hook.Allow
				table := e.NewHookSet(hooks, nil)
				e.Set(table)
				d := table.Run(envelope)
				if judge {
					d = table.Judge(envelope, d)
				}
				if want := map[bool]hook.Verb{true: hook.DenyVerb, false: hook.Continue}[back]; d.Verb != want || asked != 5 {
					t.Errorf("judge %v, back %v: %s after %d questions", judge, back, d.Verb, asked)
				}
			})
		}
	}
}

// at are plugins that have all the time they need.
func at(p hook.Point, mode hook.Mode, names ...subject.Plugin) []dispatch.Hooked {
	var out []dispatch.Hooked
	for _, n := range names {
		out = append(out, dispatch.Hooked{Plugin: n, Point: p, Mode: mode, Deadline: natstest.Patience})
	}
	return out
}

// ample gives every point as much time as its plugins.
func ample() map[hook.Point]time.Duration {
	out := map[hook.Point]time.Duration{}
	for _, p := range hook.Points() {
		out[p] = natstest.Patience
	}
	return out
}

// idle are tables without a plugin at before_act: nothing was ever registered, and
// something was, elsewhere.
func idle() map[string]*dispatch.HookSet {
	none := dispatch.New(dispatch.Config{})
	cleared := dispatch.New(dispatch.Config{})
	cleared.Set(cleared.NewHookSet(at(hook.BeforeAct, "", "p"), ample()))
	cleared.Set(cleared.NewHookSet(nil, nil))
	return map[string]*dispatch.HookSet{
		"new": none.HookSet(), "registered elsewhere": none.NewHookSet(at(hook.AfterSense, "", "p"), ample()),
		"cleared": cleared.HookSet(),
	}
}

// Budget B3: a hook point without plugins costs nothing that leaves the process,
// nor any memory.
func TestAPointWithoutPluginsAllocatesNothing(t *testing.T) {
	// Enough runs that what anybody else in the process allocates meanwhile is less
	// than one each.
	const runs = 100_000
	for name, e := range idle() {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(runs, func() {
				if e.Any(hook.BeforeAct) {
					t.Fatal("a plugin is there")
				}
				if d := e.Run(envelope); d.Verb != hook.Continue || d.Verdicts != nil {
					t.Fatalf("%+v", d)
				}
			}); n != 0 {
				t.Fatalf("%g allocations", n)
			}
		})
	}
}

func TestAChainAsksInOrderAndHandsOn(t *testing.T) {
	var asked []string
	note := func(reply string) func(context.Context, hook.Envelope) (string, error) {
		return func(_ context.Context, e hook.Envelope) (string, error) {
			asked = append(asked, string(e.Plugin)+string(e.Data))
			return reply, nil
		}
	}
	e := engine(plugins{
		"a": note(`{"verb":"replace","data":{"call":"c","tool":"rm","args":{"path":"/tmp"}}}`),
		"b": note(``),
		"c": note(`{"verb":"stop"}`),
		"d": note(`{"verb":"deny","reason":"too late"}`),
	})
	d := e.NewHookSet(at(hook.BeforeAct, "", "a", "b", "c", "d"), ample()).Run(envelope)
	if len(asked) != 3 || !strings.HasPrefix(asked[0], "a{") || !strings.HasPrefix(asked[1], "b{") ||
		!strings.Contains(asked[1], `"/tmp"`) {
		t.Errorf("asked %v", asked)
	}
	if d.Verb != hook.Replace || !strings.Contains(string(d.Data), "/tmp") || len(d.Verdicts) != 3 {
		t.Errorf("%+v", d)
	}
}

// All are asked before any answers; what comes out has the order of registration,
// not of arrival.
func TestParallelAsksAtOnceAndComposesInOrder(t *testing.T) {
	var all sync.WaitGroup
	all.Add(3)
	b, c := make(chan struct{}), make(chan struct{})
	answer := func(after <-chan struct{}, done chan<- struct{}, note string) func(context.Context, hook.Envelope) (string, error) {
		return func(_ context.Context, e hook.Envelope) (string, error) {
			all.Done()
			all.Wait()
			if after != nil {
				<-after
			}
			if done != nil {
				defer close(done)
			}
			if !strings.Contains(string(e.Data), `"text":"hi"`) {
				t.Errorf("%s was asked with %s", e.Plugin, e.Data)
			}
			return fmt.Sprintf(`{"verb":"replace","data":{"perceptions":[{"id":"7","text":"hi","annotations":[%q]}]}}`,
				note), nil
		}
	}
	e := engine(plugins{"a": answer(b, nil, "first"), "b": answer(c, b, "second"), "c": answer(nil, c, "third")})
	env := hook.Envelope{
		Point: hook.AfterSense, Agent: "a", Session: "s", Data: json.RawMessage(`{"perceptions":[{"id":"7","text":"hi"}]}`),
	}
	d := e.NewHookSet(at(hook.AfterSense, "", "a", "b", "c"), ample()).Run(env)
	var got hook.PerceptionsData
	if err := json.Unmarshal(d.Data, &got); err != nil ||
		!slices.Equal(got.Perceptions[0].Annotations, []string{"first", "second", "third"}) {
		t.Fatalf("%v %s", err, d.Data)
	}
}

// A manifest may declare another mode: parallel neighbours are asked together, a
// chain's plugin alone, all in one order.
func TestModesMayBeMixed(t *testing.T) {
	var mu sync.Mutex
	var log []string
	note := func(_ context.Context, e hook.Envelope) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, string(e.Plugin))
		return "", nil
	}
	e := engine(plugins{"a": note, "b": note, "c": note, "d": note})
	hooks := slices.Concat(at(hook.BeforeAct, hook.Parallel, "a", "b"), at(hook.BeforeAct, hook.Chain, "c"),
		at(hook.BeforeAct, hook.Parallel, "d"))
	d := e.NewHookSet(hooks, ample()).Run(envelope)
	slices.Sort(log[:2])
	if got := strings.Join(log, ""); got != "abcd" || len(d.Verdicts) != 4 {
		t.Fatalf("%s %+v", got, d)
	}
}

func TestDeadlinesAndTheBudgetOfThePoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(plugins{"slow": hangs, "slower": hangs, "fine": says("")})
		began := time.Now()
		hooks := []dispatch.Hooked{
			{Plugin: "slow", Point: hook.BeforePlan, Deadline: 3 * time.Second},
			{Plugin: "slower", Point: hook.BeforePlan, Deadline: time.Minute},
			{Plugin: "fine", Point: hook.BeforePlan},
		}
		env := hook.Envelope{
			Point: hook.BeforePlan, Agent: "a", Session: "s", Data: json.RawMessage(`{"plan":"p","round":1,"tools":[]}`),
		}
		d := e.NewHookSet(hooks, map[hook.Point]time.Duration{hook.BeforePlan: 4 * time.Second}).Run(env)
		if took := time.Since(began); took != 4*time.Second || d.Verb != hook.Continue || len(d.Verdicts) != 3 {
			t.Fatalf("%v %+v", took, d)
		}
		for i, want := range []string{
			"no answer within 3s", "the time of the hook point was used up", "the time of the hook point was used up",
		} {
			if v := d.Verdicts[i]; v.Error != want || v.Verb != hook.Continue {
				t.Errorf("%+v, want %s", v, want)
			}
		}
		if d.Verdicts[0].LatencyUS != 3_000_000 {
			t.Errorf("%+v", d.Verdicts[0])
		}
		if u := e.Use(hook.BeforePlan, "slow"); u.Asked != 1 || u.Failed != 1 || u.P99 < 2700*time.Millisecond ||
			u.P99 > 3300*time.Millisecond {
			t.Errorf("%+v", u)
		}
	})
}

// A process that was held up hears of an answer and of the deadline together.
func TestALateAnswerCountsAsNone(t *testing.T) {
	e := dispatch.New(dispatch.Config{Ask: func(_ context.Context, q []bus.Question) []bus.Answer {
		return []bus.Answer{{Data: []byte(`{"verb":"answer","data":1}`), At: q[0].Deadline}}
	}})
	d := e.NewHookSet([]dispatch.Hooked{{Plugin: "p", Point: hook.BeforeAct, OnError: hook.Allow, Deadline: time.Second}},
		nil).Run(envelope)
	if d.Verb != hook.Continue || len(d.Verdicts) != 1 || !strings.HasPrefix(d.Verdicts[0].Error, "no answer within 1") {
		t.Fatalf("%+v", d)
	}
}

// The envelope names the plugin and the deadline for its answer.
func TestTheEnvelope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []hook.Envelope
		e := engine(plugins{"p": func(_ context.Context, e hook.Envelope) (string, error) {
			got = append(got, e)
			return "", nil
		}})
		table := e.NewHookSet([]dispatch.Hooked{{Plugin: "p", Point: hook.BeforeAct}}, nil)
		table.Run(envelope)
		table.Run(envelope)
		other := envelope
		other.Data = json.RawMessage(`{"call":"t1-p1-c0","tool":"rm","args":{"path":"/home"}}`)
		table.Run(other)
		if g := got[0]; g.Plugin != "p" || g.Turn != "t1" || g.Step != envelope.Step ||
			!g.Deadline.Equal(time.Now().Add(hook.DefaultDeadline)) {
			t.Errorf("%+v", g)
		}
		if got[0].InvocationID != got[1].InvocationID || got[0].InvocationID == got[2].InvocationID {
			t.Errorf("the same question has the same id, another has not: %s %s %s", got[0].InvocationID, got[1].InvocationID,
				got[2].InvocationID)
		}
	})
}

// The envelope is written by hand; it says what json.Marshal would.
func TestTheEnvelopeIsWhatTheEncoderWrites(t *testing.T) {
	for _, env := range []hook.Envelope{
		envelope,
		{Point: hook.OnAgentStart, Agent: "a", Data: json.RawMessage(`{"instance":"i"}`)},
		{
			Point: hook.BeforeSense, Agent: "a", Session: "s", Cause: 1 << 60,
			Data: json.RawMessage(`{"text":"\"<é>\u0000","writer":"w"}`),
		},
	} {
		var sent []byte
		e := dispatch.New(dispatch.Config{Ask: func(_ context.Context, q []bus.Question) []bus.Answer {
			sent = q[0].Body
			return []bus.Answer{{At: time.Now()}}
		}})
		e.NewHookSet(at(env.Point, "", "p"), ample()).Run(env)
		var got hook.Envelope
		if err := json.Unmarshal(sent, &got); err != nil {
			t.Fatalf("%v: %s", err, sent)
		}
		want := env
		want.Plugin, want.InvocationID, want.Deadline = "p", got.InvocationID, got.Deadline
		b := &strings.Builder{}
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(want); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(b.String()) != string(sent) {
			t.Errorf("sent\n%s, want\n%s", sent, b)
		}
	}
}

func TestAPluginThatKeepsFailingIsSuspendedWithANotice(t *testing.T) {
	var reason atomic.Pointer[string]
	fail := atomic.Bool{}
	p := plugins{"p": func(context.Context, hook.Envelope) (string, error) {
		if fail.Load() {
			return "", errors.New("broken")
		}
		return "", nil
	}, "q": says("")}
	reachable := true
	suspended := make(chan struct{})
	e := dispatch.New(dispatch.Config{
		Ask: p.ask, SuspendAfter: 3, Reachable: func() bool { return reachable },
		Suspend: func(_ subject.Plugin, why string) {
			reason.Store(&why)
			close(suspended)
		},
	})
	table := e.NewHookSet(append(at(hook.BeforeAct, "", "p", "q"), at(hook.AfterAct, "", "p")...), ample())
	e.Set(table)
	run := func() hook.Decision { return table.Run(envelope) }
	fail.Store(true)
	run()
	run()
	fail.Store(false)
	run() // it answers: the count begins anew
	fail.Store(true)
	reachable = false
	for range 5 {
		run() // this process is away: the plugin is not to blame
	}
	reachable = true
	run()
	if d := run(); d.Notices != nil {
		t.Fatalf("suspended too early: %v", d.Notices)
	}
	d := run()
	<-suspended
	if len(d.Notices) != 1 || !strings.Contains(d.Notices[0], "skandha plugins resume p") ||
		!strings.Contains(*reason.Load(), "3 times in a row") {
		t.Fatalf("%v, %s", d.Notices, *reason.Load())
	}
	if d := run(); d.Notices != nil || d.Verb != hook.DenyVerb {
		t.Errorf("a second notice, or no denial: %+v", d)
	}

	// Suspended, it is not asked, and goes on denying.
	hooks := at(hook.BeforeAct, "", "p", "q")
	hooks[0].Unasked = "it is suspended"
	asked := e.Use(hook.BeforeAct, "p").Asked
	e.Set(e.NewHookSet(hooks, ample()))
	if d := e.HookSet().Run(envelope); d.Verb != hook.DenyVerb ||
		!strings.Contains(d.Reason, "p failed: it is suspended") || e.Use(hook.BeforeAct, "p").Asked != asked {
		t.Errorf("%+v", d)
	}
	// Resumed, it has three failures again.
	e.Set(table)
	if d := run(); d.Notices != nil {
		t.Errorf("%v", d.Notices)
	}
}

func TestRunOnly(t *testing.T) {
	e := engine(plugins{"a": says(""), "b": says(""), "c": says("")})
	for _, mode := range []hook.Mode{hook.Chain, hook.Parallel} {
		d := e.NewHookSet(at(hook.OnAgentStart, mode, "a", "b", "c"), ample()).RunOnly(
			hook.Envelope{Point: hook.OnAgentStart, Agent: "a", Data: json.RawMessage(`{"instance":"i"}`)},
			map[subject.Plugin]bool{"b": true})
		if len(d.Verdicts) != 1 || d.Verdicts[0].Plugin != "b" {
			t.Errorf("%s: %+v", mode, d)
		}
	}
}

// Registering while hooks run: every run sees one whole table.
func TestSetWhileRunning(t *testing.T) {
	e := engine(plugins{"a": says(`{"verb":"deny","reason":"no"}`), "b": says(`{"verb":"deny","reason":"no"}`)})
	both := e.NewHookSet(slices.Concat(at(hook.BeforeAct, hook.Chain, "a"), at(hook.AfterAct, hook.Chain, "a")), ample())
	other := e.NewHookSet(slices.Concat(at(hook.BeforeAct, hook.Chain, "b"), at(hook.AfterAct, hook.Chain, "b")), ample())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				pinned := e.HookSet()
				after := envelope
				after.Point = hook.AfterAct
				after.Data = json.RawMessage(`{"call":"c","tool":"t","args":{},"result":{"success":true}}`)
				x, y := pinned.Run(envelope), pinned.Run(after)
				if len(x.Verdicts) != len(y.Verdicts) || len(x.Verdicts) == 1 && x.Verdicts[0].Plugin != y.Verdicts[0].Plugin {
					t.Errorf("half a table: %+v %+v", x.Verdicts, y.Verdicts)
				}
			}
		})
	}
	for range 500 {
		e.Set(both)
		e.Set(other)
		e.Set(e.NewHookSet(nil, nil))
	}
	wg.Wait()
}

func BenchmarkNoHook(b *testing.B) {
	for name, e := range idle() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e.Any(hook.BeforeAct) {
					b.Fatal("a plugin is there")
				}
			}
		})
	}
}

func BenchmarkOneHook(b *testing.B) {
	e := engine(plugins{"p": says("")}).NewHookSet(at(hook.BeforeAct, "", "p"), ample())
	b.ReportAllocs()
	for b.Loop() {
		e.Run(envelope)
	}
}

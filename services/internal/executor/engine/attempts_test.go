package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// listener collects the answers that one caller gets.
type listener struct {
	mu      sync.Mutex
	answers []executor.Answer
}

func (l *listener) Reply(b []byte) error {
	var a executor.Answer
	if err := json.Unmarshal(b, &a); err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
	return nil
}

func (l *listener) states() []executor.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []executor.State
	for _, a := range l.answers {
		out = append(out, a.State)
	}
	return out
}

func (l *listener) last() executor.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) == 0 {
		return executor.Answer{}
	}
	return l.answers[len(l.answers)-1]
}

// bench is an Attempts whose work the test controls by the tool's arguments.
type bench struct {
	t *testing.T
	*Attempts
	started atomic.Int64
	block   chan struct{} // "block", "deaf" and "nobody" wait for it
}

func newBench(t *testing.T, change func(*Config)) *bench {
	b := &bench{t: t, block: make(chan struct{})}
	cfg := Config{
		Kind: subject.Runner, Service: "test", Work: b.work, Logger: slog.New(slog.DiscardHandler),
		Offer: Offer{Tools: []tool.Spec{
			{Name: "now"},
			{Name: "block"},
			{Name: "deaf"},
			{Name: "panic"},
			{Name: "garbage"},
			{Name: "nothing"},
			{Name: "fail"},
			{Name: "stubborn"},
			{Name: "short", TimeoutMS: 50},
			{Name: "nobody"},
			{Name: "unsure", TimeoutMS: 50},
			{Name: "other", Pool: "other"},
		}},
		Pools: []executor.Pool{{Name: "default", Slots: 1}, {Name: "other", Slots: 1}}, Waiting: 2,
	}
	if change != nil {
		change(&cfg)
	}
	table, err := validAttempts(cfg, "test-1")
	if err != nil {
		t.Fatal(err)
	}
	b.Attempts = table
	return b
}

func (b *bench) work(ctx context.Context, r executor.Request, progress func(string)) executor.Answer {
	b.started.Add(1)
	res := tool.OK("done")
	switch r.Tool.Name {
	case "block", "short":
		progress("half way")
		select {
		case <-b.block:
		case <-ctx.Done():
			res = tool.Failure(tool.CodeFailed, "interrupted: "+ctx.Err().Error())
		}
	case "deaf":
		<-b.block
	case "nobody": // nobody was there to do it
		<-b.block
		a := DidNotRun("nobody was there")
		a.Result = &res // counts for nothing
		return a
	case "unsure":
		<-ctx.Done()
		res = tool.Failure(tool.CodeOutcomeUnknown, "it may have run")
	case "stubborn": // heeds the context and succeeds all the same
		<-ctx.Done()
	case "fail":
		res = tool.Failure(tool.CodeFailed, "no")
	case "panic":
		panic("oh")
	case "garbage":
		res.Data = json.RawMessage("{")
	case "nothing":
		return executor.Answer{}
	}
	return executor.Answer{Result: &res}
}

func request(call, name string) executor.Request {
	return executor.Request{
		Op: executor.OpRun, Agent: "a", Session: "s", Call: call, Attempt: "1",
		StartBy: time.Now().Add(executor.StartWithin), NotAfter: time.Now().Add(time.Minute),
		Tool: &executor.ToolCall{Name: name, Args: json.RawMessage("{}")},
	}
}

// run starts an attempt as the bus does, in a new goroutine.
func (b *bench) run(call, name string) *listener {
	l := &listener{}
	go b.Run(b.t.Context(), request(call, name), l)
	synctest.Wait()
	return l
}

func (b *bench) ask(call string) executor.Answer {
	l := &listener{}
	b.Ask(request(call, "now"), l)
	synctest.Wait()
	return l.last()
}

func (b *bench) want(l *listener, states ...executor.State) {
	b.t.Helper()
	synctest.Wait()
	if got := l.states(); !slices.Equal(got, states) {
		b.t.Fatalf("got %v, want %v (last: %+v)", got, states, l.last())
	}
}

// inBubble runs the test with a fake clock, which jumps when all goroutines wait.
func inBubble(t *testing.T, change func(*Config), f func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, change)
		f(t, b)
		close(b.block)
		synctest.Wait()
	})
}

func TestInstantWorkIsOneAnswer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.run("c", "now")
		time.Sleep(5 * time.Second)
		b.want(l, executor.Finished)
		a := l.last()
		if a.Call != "c" || a.Attempt != "1" || a.Instance != "test-1" || string(a.Result.Data) != `"done"` {
			t.Fatalf("got %+v", a)
		}
	})
}

func TestLongWorkSaysThatItRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.run("c", "block")
		b.want(l)
		time.Sleep(quiet)
		b.want(l, executor.Running)
		time.Sleep(2 * executor.Heartbeat)
		b.want(l, executor.Running, executor.Running, executor.Running)
		if p := l.last().Progress; p != "half way" {
			t.Fatalf("progress is %q", p)
		}
		b.block <- struct{}{}
		b.want(l, executor.Running, executor.Running, executor.Running, executor.Finished)
		if d := l.last().DurationMS; d != 2002 {
			t.Fatalf("it took %d ms by its own account", d)
		}
	})
}

func TestARepeatedRunAttaches(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		first := b.run("c", "block")
		second := b.run("c", "block")
		b.want(first)
		b.want(second, executor.Running)
		b.block <- struct{}{}
		b.want(first, executor.Finished)
		b.want(second, executor.Running, executor.Finished)
		b.want(b.run("c", "block"), executor.Finished)
		if n := b.started.Load(); n != 1 {
			t.Fatalf("it started %d times", n)
		}
	})
}

func TestOnlyTheLatestWatchersAreTold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		first := b.run("c", "block")
		var later []*listener
		for range MaxWatchers {
			later = append(later, b.run("c", "block"))
		}
		b.block <- struct{}{}
		b.want(first)
		for _, l := range later {
			b.want(l, executor.Running, executor.Finished)
		}
	})
}

func TestAResultIsKeptUntilItIsReleased(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.run("c", "now")
		if a := b.ask("c"); a.State != executor.Finished || a.Result == nil {
			t.Fatalf("got %+v", a)
		}
		b.Release(request("c", "now"))
		if a := b.ask("c"); a.State != executor.Unknown {
			t.Fatalf("got %+v", a)
		}
		b.want(b.run("c", "now"), executor.Unknown)
		if b.kept != 0 || len(b.live) != 0 {
			t.Fatalf("%d bytes and %d attempts are still kept", b.kept, len(b.live))
		}
	})
}

func TestWhatIsReleasedWhileItRunsIsNotKept(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.run("c", "block")
		b.Release(request("c", "block"))
		b.block <- struct{}{}
		b.want(l, executor.Finished) // the watchers get the answer nevertheless
		if a := b.ask("c"); a.State != executor.Unknown || b.kept != 0 {
			t.Fatalf("got %+v, and %d bytes are kept", a, b.kept)
		}
	})
}

func TestNothingFollowsTheFinalAnswer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		l := b.run("c", "block")
		b.mu.Lock()
		a := b.live[key{"c", "1"}]
		b.mu.Unlock()
		b.block <- struct{}{}
		b.want(l, executor.Finished)
		b.sendRunning(a, l) // as a heartbeat would that was late
		b.want(l, executor.Finished)
	})
}

func TestAResultExpires(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.run("c", "now")
		time.Sleep(time.Minute + executor.Skew)
		b.Sweep()
		if a := b.ask("c"); a.State != executor.Finished {
			t.Fatalf("got %+v", a)
		}
		time.Sleep(time.Millisecond)
		b.Sweep()
		if a := b.ask("c"); a.State != executor.Unknown {
			t.Fatalf("got %+v", a)
		}
	})
}

func TestWhatWasAskedForFirstNeverRuns(t *testing.T) {
	for name, visit := range map[string]func(*bench){
		"ask":     func(b *bench) { b.Ask(request("c", "now"), nil) },
		"stop":    func(b *bench) { b.Stop(request("c", "now"), nil) },
		"release": func(b *bench) { b.Release(request("c", "now")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) {
				visit(b)
				b.want(b.run("c", "now"), executor.Never)
				if a := b.ask("c"); a.State != executor.Never || b.started.Load() != 0 {
					t.Fatalf("got %+v, and it started %d times", a, b.started.Load())
				}
			})
		})
	}
}

func TestWhatWaitsGetsItsSlotInOrder(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.run("a", "block")
		x, y := b.run("x", "block"), b.run("y", "now")
		full := b.run("z", "now")
		b.want(full, executor.Refused)
		if a := full.last(); a.Reason != executor.RefusedFull {
			t.Fatalf("got %+v", a)
		}
		if p := b.Pools()[0]; p.Busy != 3 || p.Slots != 1 {
			t.Fatalf("got %+v", p)
		}
		b.want(b.run("o", "other"), executor.Finished) // another pool is not held up
		time.Sleep(quiet)
		b.want(y, executor.Running)
		if m := y.last().Message; m != "it waits for a slot" {
			t.Fatalf("got %q", m)
		}
		b.block <- struct{}{}
		b.want(y, executor.Running)
		b.block <- struct{}{}
		b.want(x, executor.Running, executor.Finished)
		b.want(y, executor.Running, executor.Finished)
		if a := b.ask("z"); a.State != executor.Refused || a.Reason != executor.RefusedFull {
			t.Fatalf("a refusal left no tombstone: %+v", a)
		}
		b.want(b.run("z", "now"), executor.Refused) // although there is room now
	})
}

func TestWorkThatIsBrokenIsAnswered(t *testing.T) {
	for name, code := range map[string]tool.Code{
		"panic": tool.CodeInternal, "garbage": tool.CodeInternal, "nothing": tool.CodeInternal, "fail": tool.CodeFailed,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) {
				l := b.run("c", name)
				b.want(l, executor.Finished)
				if r := l.last().Result; r.Success || r.Error.Code != code {
					t.Fatalf("got %+v", r)
				}
				if p := b.Pools()[0]; p.Busy != 0 {
					t.Fatalf("got %+v", p)
				}
			})
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*executor.Request)
		want   executor.RefusedReason
	}{
		"unknown tool":  {func(r *executor.Request) { r.Tool.Name = "nope" }, executor.RefusedUnknown},
		"no tool":       {func(r *executor.Request) { r.Tool = nil }, executor.RefusedBad},
		"no start_by":   {func(r *executor.Request) { r.StartBy = time.Time{} }, executor.RefusedBad},
		"no not_after":  {func(r *executor.Request) { r.NotAfter = time.Time{} }, executor.RefusedBad},
		"over already":  {func(r *executor.Request) { r.NotAfter = time.Now() }, executor.RefusedLate},
		"no call":       {func(r *executor.Request) { r.Call = "" }, executor.RefusedBad},
		"a huge nonce":  {func(r *executor.Request) { r.Attempt = string(make([]byte, 257)) }, executor.RefusedBad},
		"start_by past": {func(r *executor.Request) { r.StartBy = time.Now().Add(-1) }, executor.RefusedLate},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) {
				r, l := request("c", "now"), &listener{}
				c.change(&r)
				b.Run(t.Context(), r, l)
				b.want(l, executor.Refused)
				if a := l.last(); a.Reason != c.want || a.Message == "" {
					t.Fatalf("got %+v", a)
				}
			})
		})
	}
}

func TestVerdictsSurviveTheirCompactForm(t *testing.T) {
	for _, s := range []executor.State{executor.Never, executor.Stopped, executor.Unknown} {
		if got, r := verdictOf(s, "").state(); got != s || r != "" {
			t.Errorf("%q became %q %q", s, got, r)
		}
	}
	for r := range refusals {
		if s, got := verdictOf(executor.Refused, r).state(); s != executor.Refused || got != r {
			t.Errorf("%q became %q %q", r, s, got)
		}
	}
	m := ids{}
	m.put(key{"ab", "c"}, wasNever)
	if m.get(key{"a", "bc"}) != noVerdict || m.get(key{"ab", "c"}) != wasNever {
		t.Error("two ids are mixed up")
	}
}

// validAttempts returns what Serve makes of a valid configuration.
func validAttempts(cfg Config, instance subject.Instance) (*Attempts, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newAttempts(cfg.withDefaults(), instance), nil
}

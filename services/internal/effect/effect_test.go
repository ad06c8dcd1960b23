package effect_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func newMarks(t *testing.T) *effect.Marks {
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	return effect.New(b)
}

func TestACallBeginsOnceOrNever(t *testing.T) {
	marks := newMarks(t)
	ctx := natstest.Context(t)
	first, second := marks.Mark("k1", "a1"), marks.Mark("k1", "a2")
	if err := errors.Join(first.Begin(ctx), first.Begin(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := second.Begin(ctx); !errors.Is(err, effect.ErrClosed) {
		t.Errorf("another attempt began: %v", err)
	}
	if r, err := marks.Close(ctx, "k1"); err != nil || r.State != effect.Begun || r.Attempt != "a1" {
		t.Errorf("%+v %v", r, err)
	}
	for range 2 {
		if r, err := marks.Close(ctx, "k2"); err != nil || r.State != effect.Closed {
			t.Errorf("%+v %v", r, err)
		}
	}
	if err := marks.Mark("k2", "a1").Begin(ctx); !errors.Is(err, effect.ErrClosed) {
		t.Errorf("a closed call began: %v", err)
	}
}

// Whatever the order, either the call begins or it is closed.
func TestBeginAndCloseAtOnce(t *testing.T) {
	marks := newMarks(t)
	ctx := natstest.Context(t)
	for _, key := range strings.Split("abcdefghijklmnopqrst", "") {
		var began, closed error
		var r effect.Record
		var both sync.WaitGroup
		both.Go(func() { began = marks.Mark(key, "a").Begin(ctx) })
		both.Go(func() { r, closed = marks.Close(ctx, key) })
		both.Wait()
		if closed != nil || (began == nil) != (r.State == effect.Begun) {
			t.Errorf("began: %v; closed: %v, %s", began, closed, r.State)
		}
	}
}

func TestAResultIsFoundAgain(t *testing.T) {
	marks := newMarks(t)
	ctx := natstest.Context(t)
	never := func(effect.Record) tool.Result { t.Error("the tool is asked"); return tool.Result{} }
	run := func(key string, begins bool, r tool.Result) {
		marks.Run(ctx, key, "a1", func(begin func(context.Context) error) tool.Result {
			if begins {
				if err := begin(ctx); err != nil {
					t.Fatal(err)
				}
			}
			return r
		})
	}
	run("done", true, tool.OK("sent"))
	if r := marks.Probe(ctx, "done", never); !r.Success || string(r.Data) != `"sent"` {
		t.Errorf("%+v", r)
	}
	run("failed", true, tool.Failure(tool.CodeFailed, "refused"))
	if r := marks.Probe(ctx, "failed", never); r.Success || r.Error.Code != tool.CodeFailed {
		t.Errorf("%+v", r)
	}
	run("early", false, tool.OK("nothing to do"))
	if r := marks.Probe(ctx, "early", never); r.Success || r.Error.Code != tool.CodeNotRun {
		t.Errorf("%+v", r)
	}
	run("large", true, tool.OK(strings.Repeat("x", 1<<20)))
	if r := marks.Probe(ctx, "large", never); !r.Success || r.Data != nil || r.Metadata["truncated"] != true {
		t.Errorf("%+v", r)
	}
	for _, code := range []tool.Code{tool.CodeOutcomeUnknown, tool.CodeTimeout} {
		key := string(code)
		run(key, true, tool.Failure(code, "no answer"))
		r := marks.Probe(ctx, key, func(began effect.Record) tool.Result {
			if began.At.IsZero() || began.Attempt == "" {
				t.Error("the tool does not get when it began")
			}
			return tool.Failure(tool.CodeOutcomeUnknown, "not in the folder")
		})
		if r.Error == nil || r.Error.Code != tool.CodeOutcomeUnknown || !strings.Contains(r.Error.Message, "not in the folder") {
			t.Errorf("%+v", r)
		}
	}
}

func TestWithoutTheBusNothingBegins(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	if err := b.JetStream().DeleteStream(natstest.Context(t), "KV_"+journal.BucketEffects); err != nil {
		t.Fatal(err)
	}
	marks := effect.New(b)
	ctx, cancel := context.WithTimeout(natstest.Context(t), time.Second)
	defer cancel()
	if err := marks.Mark("k", "a").Begin(ctx); err == nil {
		t.Error("it began")
	}
	if r := marks.Probe(ctx, "k", nil); r.Error == nil || r.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("%+v", r)
	}
}

func TestWhatAnAttemptHasRecordedOnThisMachine(t *testing.T) {
	a := effect.NewAttempts(t.TempDir(), nil)
	open, passed, done, gone := a.Open("open"), a.Open("passed"), a.Open("done"), a.Open("gone")
	if err := errors.Join(passed.Pass(), done.Pass(), gone.Pass()); err != nil {
		t.Fatal(err)
	}
	done.Done()
	gone.Done()
	gone.Forget()
	for id, want := range map[string]struct{ closed, done bool }{
		"open": {true, false}, "passed": {false, false}, "done": {false, true}, "gone": {false, false}, "never": {false, false},
	} {
		if c, d := a.Close(id), a.Done(id); c != want.closed || d != want.done {
			t.Errorf("%s: closed %v, done %v; want %+v", id, c, d, want)
		}
	}
	if err := open.Pass(); err == nil {
		t.Error("an attempt that a probe has closed went on")
	}
}

package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
)

var session = subject.Ref{Agent: "demo", Session: "s1"}

func TestAnInputIsInTheLogWhenEmitInputReturns(t *testing.T) {
	r := newRig(t)
	type sent struct {
		seq uint64
		err error
	}
	done := make(chan sent)
	r.active(manifest("ears"), plugin.Handlers{
		plugin.Listen("mic", func(ctx context.Context, e *plugin.Emitter) error {
			for _, in := range []event.Input{
				{Text: "hello", ID: "1"}, {Text: "hello", ID: "1"}, {Text: "there", Source: "hall"}, {},
			} {
				seq, err := e.EmitInput(ctx, session, in)
				done <- sent{seq, err}
			}
			return nil
		}),
	})
	first, again, second, bad := <-done, <-done, <-done, <-done
	if first.err != nil || again != first || second.err != nil || second.seq <= first.seq {
		t.Errorf("%+v, %+v, %+v", first, again, second)
	}
	if !errors.Is(bad.err, bus.ErrInvalidArgument) || !strings.Contains(bad.err.Error(), "text is empty") {
		t.Error(bad.err)
	}
	got := map[uint64]event.Input{}
	for m, err := range r.bus.Messages(natstest.Context(t), session, 0) {
		if err != nil {
			t.Fatal(err)
		}
		var in event.Input
		if err := json.Unmarshal(m.Data, &in); err != nil {
			t.Fatal(err)
		}
		got[m.Seq] = in
		if m.Subject != session.Cause(subject.Input, "mic") {
			t.Error(m.Subject)
		}
	}
	if len(got) != 2 || got[first.seq].Source != "mic" || got[second.seq].Source != "hall" ||
		got[second.seq].Text != "there" {
		t.Errorf("%+v", got)
	}
}

func TestListenersRunWhileThePluginIsActive(t *testing.T) {
	r := newRig(t)
	var running, most, runs atomic.Int64
	h := plugin.Handlers{plugin.Sense("skin", func(ctx context.Context, e *plugin.Emitter) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		runs.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})}
	p := r.active(manifest("body"), h)
	is := func(n int64) {
		t.Helper()
		natstest.Eventually(t, "as many listeners run as should", func() bool { return running.Load() == n })
	}
	is(1)
	for _, state := range []plugin.LeaseState{plugin.Waiting, plugin.Suspended} {
		r.desk.set("body", state, "why")
		is(0)
		r.desk.set("body", plugin.Active, "")
		is(1)
	}
	if err := p.stop(); err != nil || running.Load() != 0 {
		t.Errorf("%v, %d run", err, running.Load())
	}
	if runs.Load() != 3 || most.Load() != 1 {
		t.Errorf("%d runs, %d at once", runs.Load(), most.Load())
	}
}

func TestAListenerThatFailsIsStartedAgain(t *testing.T) {
	r := newRig(t)
	var runs atomic.Int64
	ended := make(chan struct{})
	p := r.active(manifest("ears"), plugin.Handlers{
		plugin.Listen("mic", func(context.Context, *plugin.Emitter) error {
			switch runs.Add(1) {
			case 1:
				return errors.New("unplugged")
			case 2:
				panic("oh")
			}
			close(ended)
			return nil
		}),
	})
	<-ended
	r.desk.await(subject.Heartbeat, 3)
	if runs.Load() != 3 || p.log.count("unplugged") != 1 {
		t.Errorf("%d runs; logged %d times", runs.Load(), p.log.count("unplugged"))
	}
}

func TestLoadAndUnload(t *testing.T) {
	r := newRig(t)
	var steps []string
	step := func(s string, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); strings.HasPrefix(s, "unload") && !bounded {
				t.Error("unloading is not bounded")
			}
			steps = append(steps, s)
			return err
		}
	}
	h := plugin.Handlers{
		deny("no"), plugin.Load(step("load 1", nil)), plugin.Unload(step("unload 1", nil)),
		plugin.Load(step("load 2", nil)), plugin.Unload(step("unload 2", nil)),
	}
	if err := r.active(manifest("life"), h).stop(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(steps, ", "); got != "load 1, load 2, unload 2, unload 1" {
		t.Error(got)
	}

	steps = nil
	registered := r.desk.count(subject.Register)
	broken := append(slices.Clone(h), plugin.Load(step("load 3", errors.New("no disk"))),
		plugin.Unload(func(context.Context) error { panic("oh") }))
	err := r.start(manifest("life"), broken).end()
	if err == nil || !strings.Contains(err.Error(), "loading: no disk") || !strings.Contains(err.Error(), "unloading: ") {
		t.Error(err)
	}
	if got := strings.Join(steps, ", "); got != "load 1, load 2, load 3, unload 2, unload 1" ||
		r.desk.count(subject.Register) != registered {
		t.Errorf("%s; registered %d times", got, r.desk.count(subject.Register)-registered)
	}
}

package decide_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// driver runs turns through decide as the shell does, without a replica.
type driver struct {
	w     *world
	s     *decide.State
	seq   uint64
	bytes int
	env   *decide.Env
}

func newDriver(b *testing.B, turns int) *driver {
	w := newWorld(b)
	d := &driver{w: w, s: decide.New(ref), env: w.env()}
	for range turns {
		d.turn(b)
	}
	d.bytes = 0
	return d
}

func (d *driver) store(b *testing.B, x *decide.Decision) {
	if x == nil {
		b.Fatal("no decision")
	}
	body, err := x.Commit.Encode()
	if err != nil {
		b.Fatal(err)
	}
	d.seq++
	d.bytes += len(body)
	d.s = x.Stored(d.seq)
}

var (
	benchInput = []byte(`{"text":"What does the file a.txt say?","id":""}`)
	benchCalls = &provider.Response{
		ToolCalls: calls("read", `{"path":"a.txt"}`), Usage: provider.Usage{InputTokens: 500, OutputTokens: 20},
	}
	benchResult = &tool.Result{
		Success: true, Data: json.RawMessage(`{"text":"Lorem ipsum dolor sit amet, consectetur adipiscing elit."}`),
	}
	benchFinal = &provider.Response{
		TextContent: "It says: Lorem ipsum dolor sit amet.", Usage: provider.Usage{InputTokens: 600, OutputTokens: 20},
	}
)

// turn is a whole turn: input, plan, one call, plan, final answer. Four commits.
func (d *driver) turn(b *testing.B) {
	d.seq++
	x, _ := decide.OnCause(d.s, d.seq, decide.ReadCause(d.seq, inputOf("web"), d.w.now, benchInput), nil, d.env)
	d.store(b, x)
	d.plan(b, benchCalls)
	st := d.s.Turn.Steps[0]
	x, _ = decide.OnCallAnswer(d.s, d.s.Driver,
		executor.Answer{Call: st.Call, Attempt: st.Attempt, State: executor.Finished, Result: benchResult}, d.env)
	d.store(b, x)
	d.plan(b, benchFinal)
}

func (d *driver) plan(b *testing.B, r *provider.Response) {
	p := d.s.Turn.Plan
	x, _ := decide.OnPlanAnswer(d.s, d.s.Driver,
		executor.Answer{Call: p.ID, Attempt: p.Attempt, State: executor.Finished, Response: r}, d.env)
	d.store(b, x)
}

// Everything that core computes for a turn (deciding, folding, digest, encoding), for a
// new session and for one with a full window (B13: flat).
func BenchmarkTurn(b *testing.B) {
	for _, before := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("after-%d-turns", before), func(b *testing.B) {
			d := newDriver(b, before)
			start := *d
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%16 == 0 {
					d.s, d.seq = start.s, start.seq
				}
				d.turn(b)
			}
			b.ReportMetric(float64(d.bytes)/float64(b.N), "log-bytes/op")
		})
	}
}

// The cost of rebuilding, per commit, for a core that takes over.
func BenchmarkApply(b *testing.B) {
	w := eventful(b)
	var all []event.Commit
	for _, m := range w.log {
		c, err := event.DecodeCommit(ref, m.body)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, c)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := decide.New(ref)
		for i, c := range all {
			next, err := s.Apply(c, w.log[i].seq)
			if err != nil {
				b.Fatal(err)
			}
			s = next
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/commit")
}

func BenchmarkSnapshot(b *testing.B) {
	w := eventful(b)
	data, at, rev := w.snapshot()
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.state.Snapshot(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decide.FromSnapshot(data, ref, at, rev); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/internal/natsserver"
)

// hooks is B3.
func hooks(context.Context, Options) ([]Row, error) {
	e := dispatch.New(dispatch.Config{}).HookSet()
	points := hook.Points()
	res := testing.Benchmark(func(b *testing.B) {
		for i := range b.N {
			if p := points[i%len(points)]; e.Any(p) {
				e.Run(hook.Envelope{Point: p})
			}
		}
	})
	return []Row{
		absolute("B3", "a hook point without hooks", float64(res.T.Nanoseconds())/float64(res.N)/1e3, 1, "µs"),
	}, nil
}

// modes are the ways a log can be kept.
var modes = []struct {
	sync        natsserver.Sync
	turn, flood float64 // budgets of B4 and B6
}{
	{natsserver.Always, 1.6, 0.6},
	{natsserver.Relaxed, 3, 0.45},
}

// turnEmbedded is B4.
func turnEmbedded(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	for _, m := range modes {
		err := withRig(ctx, o, m.sync, func(r *rig) error {
			ours, raw, err := r.pair(ctx, "one")
			if err != nil {
				return err
			}
			a, b, err := interleave(ctx, o.n(1000), ours, raw)
			rows = append(rows, ratio("B4", "turn, embedded, sync "+string(m.sync), a, b, m.turn))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

const sessions = 64

// throughput is B6.
func throughput(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	for _, m := range modes {
		err := withRig(ctx, o, m.sync, func(r *rig) error {
			if err := r.serveBare(ctx); err != nil {
				return err
			}
			got, err := r.flood(ctx, o, m.sync, m.flood)
			rows = append(rows, got...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (r *rig) flood(ctx context.Context, o Options, mode natsserver.Sync, least float64) ([]Row, error) {
	ours, err := r.talkers(ctx, sessions)
	if err != nil {
		return nil, err
	}
	raw := make([]*bare, sessions)
	for i, t := range ours {
		if raw[i], err = newBare(ctx, t.bus, fmt.Sprintf("flood-%d", i)); err != nil {
			return nil, err
		}
	}
	each := o.n(50)
	commits := r.core.Stats().Commits.Load()
	var a, b []float64
	for range 3 {
		x, err := perSecond(each, func(i int) error { return ours[i].turn(ctx) })
		if err != nil {
			return nil, err
		}
		y, err := perSecond(each, func(i int) error { return raw[i].turn(ctx) })
		if err != nil {
			return nil, err
		}
		a, b = append(a, x), append(b, y)
	}
	slices.Sort(a)
	slices.Sort(b)
	turns := float64(3 * sessions * each)
	appends := float64(r.core.Stats().Commits.Load()-commits)/turns + 1 // and the input
	return []Row{
		rate("B6", "turns/s, 64 sessions, sync "+string(mode), a[1], b[1], least),
		absolute("B6", "appends per turn, sync "+string(mode), appends, 5, "appends"),
	}, nil
}

// talkers makes n of them, each with a separate connection and session.
func (r *rig) talkers(ctx context.Context, n int) ([]*talker, error) {
	out := make([]*talker, n)
	for i := range n {
		b, err := r.connect(ctx, "talker")
		if err != nil {
			return nil, err
		}
		r.stops = append(r.stops, b.Close)
		if out[i], err = newTalker(b, fmt.Sprintf("flood-%d", i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// perSecond runs each turns in every session at once.
func perSecond(each int, turn func(i int) error) (float64, error) {
	begin := time.Now()
	err := together(sessions, func(i int) error {
		for range each {
			if err := turn(i); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(sessions*each) / time.Since(begin).Seconds(), err
}

// growth is B13: a session of 2,000 turns, 10,000 messages of the log, against
// ones of two turns.
func growth(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	err := withRig(ctx, o, natsserver.Relaxed, func(r *rig) error {
		long, _, err := r.pair(ctx, "long")
		if err != nil {
			return err
		}
		for range o.n(2000) {
			if err := long(ctx); err != nil {
				return err
			}
		}
		b, err := r.connect(ctx, "talker")
		if err != nil {
			return err
		}
		defer b.Close()
		var a, c []time.Duration
		for i := range o.n(300) {
			young, err := newTalker(b, fmt.Sprintf("young-%d", i))
			if err != nil {
				return err
			}
			for range 2 {
				if err := young.turn(ctx); err != nil {
					return err
				}
			}
			x, err := timed(ctx, long)
			if err != nil {
				return err
			}
			y, err := timed(ctx, young.turn)
			if err != nil {
				return err
			}
			young.close()
			a, c = append(a, x), append(c, y)
		}
		rows = append(rows, ratio("B13", "a turn at 10,000 events against one at 10", median(a), median(c), 1.2))
		return nil
	})
	return rows, err
}

package bench

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/natsserver"
)

// restart is B7.
func restart(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	err := withRig(ctx, o, natsserver.Relaxed, func(r *rig) error {
		turn, _, err := r.pair(ctx, "big")
		if err != nil {
			return err
		}
		for range 200 { // of five messages: 1,000 events
			if err := turn(ctx); err != nil {
				return err
			}
		}
		if rows, err = r.loads(ctx, o); err != nil {
			return err
		}
		many := o.n(10_000)
		if err := r.manySessions(ctx, many); err != nil {
			return err
		}
		d, err := r.secondCore(ctx)
		rows = append(rows,
			absolute("B7", fmt.Sprintf("a core's start to its first turn's end, %d sessions known", many), ms(d), 2000, "ms"))
		return err
	})
	return rows, err
}

func (r *rig) loads(ctx context.Context, o Options) ([]Row, error) {
	b, err := r.connect(ctx, "loader")
	if err != nil {
		return nil, err
	}
	defer b.Close()
	l := &loader.Loader{Bus: b, Store: r.store, Log: quiet}
	ref := subject.Ref{Agent: "main", Session: "big"}
	st, err := l.Rebuild(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := l.Save(ctx, st); err != nil {
		return nil, err
	}
	snap, log, err := interleave(ctx, o.n(50),
		func(ctx context.Context) error { _, err := l.Load(ctx, ref, nil); return err },
		func(ctx context.Context) error { _, err := l.Rebuild(ctx, ref); return err })
	return []Row{
		absolute("B7", "session of 1,000 events ready from its snapshot", ms(snap), 5, "ms"),
		absolute("B7", "the same refolded from the log", ms(log), 60, "ms"),
	}, err
}

// manySessions runs one turn in each of n sessions.
func (r *rig) manySessions(ctx context.Context, n int) error {
	const workers = 32
	return together(workers, func(w int) error {
		b, err := r.connect(ctx, "talker")
		if err != nil {
			return err
		}
		defer b.Close()
		for i := w; i < n; i += workers {
			t, err := newTalker(b, fmt.Sprintf("known-%d", i))
			if err != nil {
				return err
			}
			if err := t.turn(ctx); err != nil {
				return err
			}
			t.close()
		}
		return nil
	})
}

// secondCore ends the rig's core and times a new one from its start to the end
// of a turn in a session that it has to load.
func (r *rig) secondCore(ctx context.Context) (time.Duration, error) {
	b, err := r.connect(ctx, "talker")
	if err != nil {
		return 0, err
	}
	defer b.Close()
	t, err := newTalker(b, "known-1")
	if err != nil {
		return 0, err
	}
	r.stopCore()
	if err := r.store.Close(); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := r.startCore(ctx); err != nil {
		return 0, err
	}
	if err := t.turn(ctx); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

package bench

import (
	"context"
	"os"
	"path/filepath"

	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
)

// withRights compares turns on a bus with rights with those on one without.
func withRights(ctx context.Context, o Options) (rows []Row, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	with, without := &rig{dir: filepath.Join(dir, "with")}, &rig{dir: filepath.Join(dir, "without")}
	if with.trust, err = trust.Open(filepath.Join(dir, "keys.json")); err != nil {
		return nil, err
	}
	turns := make([]func(context.Context) error, 0, 2)
	for _, r := range []*rig{with, without} {
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return nil, err
		}
		if err := r.start(ctx, natsserver.Relaxed); err != nil {
			return nil, err
		}
		defer r.stop()
		b, err := r.connect(ctx, "client")
		if err != nil {
			return nil, err
		}
		defer b.Close()
		t, err := newTalker(b, "one")
		if err != nil {
			return nil, err
		}
		defer t.close()
		turns = append(turns, t.turn)
	}
	ours, raw, err := interleave(ctx, o.n(1000), turns[0], turns[1])
	if err != nil {
		return nil, err
	}
	return []Row{ratio("B19", "a turn with rights on the bus, against one without", ours, raw, 1.05)}, nil
}

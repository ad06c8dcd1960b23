package shell

import (
	"context"
	"sync"
	"time"
)

// The names of the watermark below which every cause has been acknowledged, which
// is permanent (rule 4).
const (
	floorMark   = "causes_ack_floor"
	floorAtMark = "causes_ack_floor_at" // when the message there was stored: Unix time in nanoseconds
)

// floor is where a consumer that must be made may begin. It is a view: the log
// may be another one than that which it was read from, emptied or restored from
// an older copy, and its causes would never be delivered. So it counts only if
// the message there is the one it was.
type floor struct {
	mu  sync.Mutex
	seq uint64
	at  uint64
}

func (f *floor) get() (seq, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, f.at
}

func (f *floor) set(seq, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq, f.at = seq, at
}

func (b *behind) loadFloor(ctx context.Context) error {
	seq, err := b.c.store.Mark(ctx, floorMark)
	if err != nil {
		return err
	}
	at, err := b.c.store.Mark(ctx, floorAtMark)
	if err != nil {
		return err
	}
	b.floor.set(seq, at)
	return nil
}

// sureFloor is the floor if the log confirms it, else 0: then every cause is
// looked at again, which costs deliveries and nothing else.
func (b *behind) sureFloor() uint64 {
	seq, at := b.floor.get()
	if seq == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	m, err := b.c.bus.Message(ctx, seq)
	if err == nil && uint64(m.Time.UnixNano()) == at { //nolint:gosec // after 1970
		return seq
	}
	b.c.log.Warn("the ack floor is not that of this log; every cause is looked at again", "floor", seq, "error", err)
	b.floor.set(0, 0)
	return 0
}

// saveFloor lays down the floor. The two marks need not change together: what
// does not fit is not believed.
func (b *behind) saveFloor() {
	b.mu.Lock()
	causes := b.causes
	b.mu.Unlock()
	if causes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	seq, err := causes.AckFloor(ctx)
	if before, _ := b.floor.get(); err != nil || seq <= before {
		return
	}
	m, err := b.c.bus.Message(ctx, seq)
	if err != nil {
		b.c.log.Debug("reading the message at the ack floor", "error", err)
		return
	}
	at := uint64(m.Time.UnixNano()) //nolint:gosec // after 1970
	b.floor.set(seq, at)
	for mark, value := range map[string]uint64{floorMark: seq, floorAtMark: at} {
		if err := b.c.store.SetMark(ctx, mark, value); err != nil {
			b.c.log.Debug("saving the ack floor", "mark", mark, "error", err)
		}
	}
}

package shell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
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
	b.floor.set(0, 0)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		b.c.log.Warn("the ack floor cannot be confirmed; every cause is looked at again", "floor", seq, "error", err)
		return 0
	}
	b.lostFloor(ctx, seq, time.Unix(0, int64(at))) //nolint:gosec // it was one
	return 0
}

// lostFloor says what it means that the log does not hold the message up to which
// every cause was acknowledged: it is another log than the view's, or has lost
// messages.
func (b *behind) lostFloor(ctx context.Context, seq uint64, at time.Time) {
	log, err := b.c.bus.LogState(ctx)
	if err != nil {
		b.c.log.Warn("the ack floor is not in the log; every cause is looked at again", "floor", seq, "error", err)
		return
	}
	if log.Created.After(at.Add(clockSkew)) {
		b.c.log.Warn("the view is that of another log; what it holds of sessions that are not in this one is dropped when they speak",
			"log_created", log.Created, "view_at", at)
		return
	}
	lost := fmt.Sprintf("message %d of %s was acknowledged and is not in the log any more", seq, at.UTC().Format(time.RFC3339))
	if log.Last < seq {
		lost += fmt.Sprintf(", which ends at %d: later sequences are used again", log.Last)
	}
	lost += "; the stream SESSIONS was damaged or restored from an older copy, sessions that lost commits are locked when they speak: /repair opens them"
	b.c.troubles.note(subject.Ref{}, coreapi.TroubleLog, lost)
	b.c.log.Error("ALARM: the log has lost messages", "error", lost)
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

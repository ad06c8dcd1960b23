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

// The marks of the ack floor: every cause up to it has been acknowledged, which is
// permanent (rule 4).
const (
	floorMark   = "causes_ack_floor"
	floorAtMark = "causes_ack_floor_at" // when the message there was stored: Unix time in nanoseconds
)

// floor is where a newly created consumer may start. It is a view: it may come from
// another log, or the log may have been emptied or restored from an older copy, and
// some causes would never be delivered. So it counts only if the log still holds the
// same message there.
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

// sureFloor returns the floor if the log confirms it, else 0. With 0 every cause is
// delivered again, which only costs deliveries.
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
		b.c.log.Warn("cannot confirm the ack floor; every cause is delivered again", "floor", seq, "error", err)
		return 0
	}
	b.lostFloor(ctx, seq, time.Unix(0, int64(at))) //nolint:gosec // it was an int64
	return 0
}

// lostFloor reports why the log does not hold the message at the ack floor: the view
// belongs to another log, or this log has lost messages.
func (b *behind) lostFloor(ctx context.Context, seq uint64, at time.Time) {
	log, err := b.c.bus.LogState(ctx)
	if err != nil {
		b.c.log.Warn("the ack floor is not in the log; every cause is delivered again", "floor", seq, "error", err)
		return
	}
	if log.Created.After(at.Add(clockSkew)) {
		b.c.log.Warn("the view belongs to another log; entries of sessions that this log lacks are dropped at their next input",
			"log_created", log.Created, "view_at", at)
		return
	}
	lost := fmt.Sprintf("message %d of %s was acknowledged and is not in the log any more", seq, at.UTC().Format(time.RFC3339))
	if log.Last < seq {
		lost += fmt.Sprintf(", which ends at %d: later sequences are reused", log.Last)
	}
	lost += "; the stream SESSIONS was damaged or restored from an older copy; sessions that lost commits are locked at their next input, and /repair reopens them"
	b.c.troubles.note(subject.Ref{}, coreapi.TroubleLog, lost)
	b.c.log.Error("ALARM: the log has lost messages", "error", lost)
}

// saveFloor saves the floor. The two marks need not change atomically: marks that do
// not match the log are not trusted.
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

package view

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/loader"
)

// The marks of the ack floor: every cause up to it has been acknowledged, and
// acknowledgements are permanent (rule 4).
const (
	floorMark   = "causes_ack_floor"
	floorAtMark = "causes_ack_floor_at" // when the message there was stored: Unix time in nanoseconds
	// trimmedMark is the last message that retention was about to remove from the log. The message at the floor may be
	// one of those before it.
	trimmedMark = "log_trimmed"
)

// Trims notes that messages up to a sequence are about to leave the log.
func (w *Writer) Trims(ctx context.Context, upTo uint64) error {
	return w.cfg.Store.SetMark(ctx, trimmedMark, upTo)
}

// ackFloor is the sequence after which a newly created consumer may start. It is a view:
// it may come from another log, or the log may have been emptied or restored from an
// older copy, and then some causes would never be delivered. So it counts only if the log
// still holds the same message there.
type ackFloor struct {
	mu  sync.Mutex
	seq uint64
	at  uint64
}

func (f *ackFloor) get() (seq, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, f.at
}

func (f *ackFloor) set(seq, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq, f.at = seq, at
}

// LoadFloor reads the floor that was saved last.
func (w *Writer) LoadFloor(ctx context.Context) error {
	seq, err := w.cfg.Store.Mark(ctx, floorMark)
	if err != nil {
		return err
	}
	at, err := w.cfg.Store.Mark(ctx, floorAtMark)
	if err != nil {
		return err
	}
	w.floor.set(seq, at)
	return nil
}

// ForgetFloor drops the floor, because the log that it belongs to was lost.
func (w *Writer) ForgetFloor() { w.floor.set(0, 0) }

// ConfirmedFloor returns the floor if the log confirms it, else 0. With 0 every cause is
// delivered again, which only costs deliveries.
func (w *Writer) ConfirmedFloor() uint64 {
	seq, at := w.floor.get()
	if seq == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	m, err := w.cfg.Bus.Message(ctx, seq)
	if err == nil && uint64(m.Time.UnixNano()) == at { //nolint:gosec // after 1970
		return seq
	}
	if errors.Is(err, bus.ErrNotFound) && w.trimmed(ctx, seq, at) {
		return seq
	}
	w.floor.set(0, 0)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		w.cfg.Log.Warn("cannot confirm the ack floor; every cause is delivered again", "floor", seq, "error", err)
		return 0
	}
	w.reportLostFloor(ctx, seq, time.Unix(0, int64(at))) //nolint:gosec // it was an int64
	return 0
}

// trimmed reports whether the message at the floor may have left the log by retention, which is of the floor's log.
func (w *Writer) trimmed(ctx context.Context, seq, at uint64) bool {
	to, err := w.cfg.Store.Mark(ctx, trimmedMark)
	if err != nil || to < seq {
		return false
	}
	log, err := w.cfg.Bus.LogState(ctx)
	return err == nil && log.Last >= seq && !log.Replaced(time.Unix(0, int64(at)), loader.ClockSkew) //nolint:gosec // it was an int64
}

// reportLostFloor reports why the log does not hold the message at the ack floor: the view
// belongs to another log, or this log has lost messages.
func (w *Writer) reportLostFloor(ctx context.Context, seq uint64, at time.Time) {
	log, err := w.cfg.Bus.LogState(ctx)
	if err != nil {
		w.cfg.Log.Warn("the ack floor is not in the log; every cause is delivered again", "floor", seq, "error", err)
		return
	}
	if log.Replaced(at, loader.ClockSkew) {
		w.cfg.Log.Warn("the view belongs to another log; entries of sessions that this log lacks are "+
			"dropped at their next input",
			"log_created", log.Created, "view_at", at)
		return
	}
	lost := fmt.Sprintf("message %d of %s was acknowledged and is not in the log any more", seq,
		at.UTC().Format(time.RFC3339))
	if log.Last < seq {
		lost += fmt.Sprintf(", which ends at %d: later sequences are reused", log.Last)
	}
	lost += "; the stream SESSIONS was damaged or restored from an older copy; " +
		"sessions that lost commits are locked at their next input, and /repair reopens them"
	w.cfg.LogLost(lost)
	w.cfg.Log.Error("ALARM: the log has lost messages", "error", lost)
}

// saveFloor saves the floor. The two marks need not change atomically: marks that do
// not match the log are not trusted.
func (w *Writer) saveFloor() {
	w.mu.Lock()
	causes := w.causes
	w.mu.Unlock()
	if causes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	seq, err := causes.AckFloor(ctx)
	if before, _ := w.floor.get(); err != nil || seq <= before {
		return
	}
	m, err := w.cfg.Bus.Message(ctx, seq)
	if err != nil {
		w.cfg.Log.Debug("reading the message at the ack floor", "error", err)
		return
	}
	at := uint64(m.Time.UnixNano()) //nolint:gosec // after 1970
	w.floor.set(seq, at)
	for mark, value := range map[string]uint64{floorMark: seq, floorAtMark: at} {
		if err := w.cfg.Store.SetMark(ctx, mark, value); err != nil {
			w.cfg.Log.Debug("saving the ack floor", "mark", mark, "error", err)
		}
	}
}

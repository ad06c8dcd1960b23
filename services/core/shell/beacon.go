package shell

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/trouble"
	"skandha.dev/services/internal/journal"
)

// DefaultPerListener is how many inputs of one invited listener may wait at a core.
const DefaultPerListener = 256

// DefaultBacklog is how many causes may wait before inputs are refused.
const DefaultBacklog = 10_000

// beacon publishes the backlog and the state of the log's storage about once a second, for
// processes that store inputs. It also follows what sessions of other cores wait for: see
// [bus.Beacon]. The backlog counts the causes not delivered or not acknowledged. An open
// turn holds one delivery; inputs queued in a session and turns that wait for a person hold
// none.
type beacon struct {
	bus    *journal.Journal
	log    *slog.Logger
	dir    *directory.Directory
	parked func() uint64
	limit  int // negative: none
	causes atomic.Pointer[journal.Consumption]
	last   atomic.Int64 // backlog; -1: unknown
	use    atomic.Pointer[bus.LogUse]
}

func newBeacon(j *journal.Journal, log *slog.Logger, dir *directory.Directory, t *trouble.List, backlog int) *beacon {
	b := &beacon{bus: j, log: log, dir: dir, parked: t.Parked, limit: backlog}
	if b.limit == 0 {
		b.limit = DefaultBacklog
	}
	b.last.Store(-1)
	return b
}

// start publishes until stop is called.
func (b *beacon) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go b.dir.Turns(ctx)
	go b.bus.WatchQuorum(ctx)
	b.bus.FollowBeacons(func(all []bus.Beacon) { b.dir.Share(b.bus.Instance(), all) })
	go func() {
		defer close(done)
		b.publish(ctx, true)
		tick, moved := time.NewTicker(bus.BeaconEvery), b.dir.Moved()
		defer tick.Stop()
		var again <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				b.publish(ctx, true)
			case <-b.bus.StorageChanged():
				b.publish(ctx, false)
			case <-moved:
				b.publish(ctx, false)
				moved, again = nil, time.After(beaconPause)
			case <-again:
				moved, again = b.dir.Moved(), nil
			}
		}
	}()
	return func() { cancel(); <-done }
}

// beaconPause is the shortest time between two beacons outside of [bus.BeaconEvery].
const beaconPause = 100 * time.Millisecond

// publish sends a beacon. If measure is false, it repeats the latest backlog instead of
// asking the server for it.
func (b *beacon) publish(ctx context.Context, measure bool) {
	if measure {
		b.measure(ctx)
	}
	// Each process reports only the faults that it has seen itself.
	is := bus.Beacon{
		Storage: b.bus.SeenStorageFault(), Log: b.use.Load(), Waiting: b.dir.Demand(),
		Parked: b.parked(), Fold: decide.FoldVersion,
	}
	if n := b.last.Load(); n >= 0 {
		is.Backlog, is.Limit = uint64(n), max(b.limit, 0)
	}
	if err := b.bus.PublishBeacon(ctx, is); err != nil && ctx.Err() == nil {
		b.log.Debug("publishing the beacon", "error", err)
	}
}

// measure asks the server, which may be silent: beacons go on even so.
func (b *beacon) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bus.BeaconEvery)
	defer cancel()
	b.use.Store(b.logUse(ctx))
	if n, err := b.backlog(ctx); err == nil {
		b.last.Store(int64(n)) //nolint:gosec // messages in a log
	} else {
		b.last.Store(-1)
	}
}

// logUse returns how much of the log is used; nil: it has no limit, or cannot be asked.
func (b *beacon) logUse(ctx context.Context) *bus.LogUse {
	info, err := b.bus.LogInfo(ctx, "")
	if err != nil || info.Config.MaxBytes <= 0 {
		return nil
	}
	return &bus.LogUse{Bytes: info.State.Bytes, Most: uint64(info.Config.MaxBytes)}
}

var errNoConsumer = errors.New("causes are not consumed yet")

func (b *beacon) backlog(ctx context.Context) (uint64, error) {
	causes := b.causes.Load()
	if causes == nil {
		return 0, errNoConsumer
	}
	return causes.Backlog(ctx)
}

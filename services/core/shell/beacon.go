package shell

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
)

// DefaultBacklog is how many causes may wait before inputs are refused.
const DefaultBacklog = 10_000

// beacon publishes the backlog and the state of the log's storage about once a second, for
// processes that store inputs. It also follows what sessions of other cores wait for: see
// [bus.Beacon]. The backlog counts the causes not delivered or not acknowledged. An open
// turn holds one delivery; inputs queued in a session and turns that wait for a person hold
// none.
type beacon struct {
	c      *Core
	limit  int // negative: none
	causes atomic.Pointer[journal.Consumption]
	last   atomic.Int64 // backlog; -1: unknown
}

func newBeacon(c *Core) *beacon {
	b := &beacon{c: c, limit: c.cfg.Backlog}
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
	go b.c.dir.Turns(ctx)
	b.c.bus.FollowBeacons(func(all []bus.Beacon) { b.c.dir.Share(b.c.bus.Instance(), all) })
	go func() {
		defer close(done)
		b.publish(ctx, true)
		tick, moved := time.NewTicker(bus.BeaconEvery), b.c.dir.Moved()
		defer tick.Stop()
		var again <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				b.publish(ctx, true)
			case <-moved:
				b.publish(ctx, false)
				moved, again = nil, time.After(beaconPause)
			case <-again:
				moved, again = b.c.dir.Moved(), nil
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
		if n, err := b.backlog(ctx); err == nil {
			b.last.Store(int64(n)) //nolint:gosec // messages in a log
		} else {
			b.last.Store(-1)
		}
	}
	// Each process reports only the faults that it has seen itself.
	is := bus.Beacon{
		Storage: b.c.bus.SeenStorageFault(), Waiting: b.c.dir.Demand(),
		Parked: b.c.parked.count(), Fold: decide.FoldVersion,
	}
	if n := b.last.Load(); n >= 0 {
		is.Backlog, is.Limit = uint64(n), max(b.limit, 0)
	}
	if err := b.c.bus.PublishBeacon(ctx, is); err != nil && ctx.Err() == nil {
		b.c.log.Debug("publishing the beacon", "error", err)
	}
}

var errNoConsumer = errors.New("causes are not consumed yet")

func (b *beacon) backlog(ctx context.Context) (uint64, error) {
	causes := b.causes.Load()
	if causes == nil {
		return 0, errNoConsumer
	}
	ctx, cancel := context.WithTimeout(ctx, bus.BeaconEvery)
	defer cancel()
	return causes.Backlog(ctx)
}

// faults returns the problems outside of sessions, for operators.
func (c *Core) faults() (out []coreapi.Fault) {
	if f := c.bus.StorageFault(); f != nil {
		out = append(out, coreapi.Fault{What: coreapi.FaultBus, Message: f.Error(), Since: f.Since})
	}
	if f := c.view.Fault(); f != nil {
		out = append(out, *f)
	}
	if err := c.bus.Overload(); err != nil {
		out = append(out, coreapi.Fault{What: coreapi.FaultOverload, Message: err.Error()})
	}
	return out
}

// providerGrace is how long providers have to announce themselves before status names
// a missing one.
const providerGrace = 3 * time.Second

// providerFault returns the fault of an agent whose provider no service offers, or nil.
func (c *Core) providerFault(name subject.Agent) *coreapi.Fault {
	wanted := c.cfg.Agents[name].Provider
	gone := c.dir.WithoutProvider(wanted)
	if gone < providerGrace {
		return nil
	}
	which, fix := "no provider", "start one (skandha-provider, or a plugin that is one)"
	if wanted != "" {
		which, fix = fmt.Sprintf("no provider %q", wanted), fmt.Sprintf("start it, or correct agents.%s.provider", name)
	}
	return &coreapi.Fault{
		What: coreapi.FaultProvider, Agent: name, Since: time.Now().Add(-gone).UTC(),
		Message: fmt.Sprintf("agent %s has %s: its turns wait, then fail with no_provider; %s", name, which, fix),
	}
}

package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
)

// defaultGrace is the default of [Sense].Grace.
const defaultGrace = 10 * time.Second

// cutOff is why nothing is recorded while the bus is away.
const cutOff = "stopped: the bus cannot be reached, so that nobody could switch it off"

// follow reads the source while the switch is on and the bus can be reached.
func (r *Recorder) follow(ctx context.Context, watch *journal.BucketWatch, turned <-chan position) {
	end := func() {}
	defer func() { end() }()
	var last, is *position // what the switch decides, and what is done
	grace := r.sense.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	tick := time.NewTicker(grace / 10)
	defer tick.Stop()
	followed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-turned:
			last = &p
		case <-tick.C:
		}
		if _, ok := watch.Since(); ok || r.sense.Ends {
			followed = time.Now()
		}
		select {
		case p := <-turned: // what the watch learned before it followed
			last = &p
		default:
		}
		if last == nil {
			continue
		}
		want := *last
		if time.Since(followed) > grace && want.on {
			want = position{cut: true, epoch: want.epoch, why: cutOff}
		}
		if is == nil || is.on != want.on || is.epoch != want.epoch && want.on {
			end()
			r.obeys(want) // only now that the source is released
			end = r.turn(ctx, want)
		} else if *is != want { // it was switched to where it is
			if !want.on {
				r.rest(want)
			}
			r.obeys(want)
		}
		is = &want
	}
}

// obeys says which switch is followed now. That the bus is away is not one.
func (r *Recorder) obeys(p position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.cut {
		r.obeyed = p
	}
}

// turn begins to read the source, or reports that it is not read. The function that it returns ends
// reading, and waits until the source is released.
func (r *Recorder) turn(ctx context.Context, p position) (end func()) {
	r.log.Info("recording", "on", p.on, "why", p.why)
	if !p.on {
		r.rest(p)
		return func() {}
	}
	r.set(true, "")
	r.Idle()
	r.permit(p)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { r.read(ctx) })
	return func() {
		cancel()
		done.Wait()
		r.set(false, "stopped")
	}
}

// rest says why nothing is recorded, which is as it should be unless the bus is away.
func (r *Recorder) rest(p position) {
	r.set(false, p.why)
	if p.cut {
		r.source.Set(contract.StateDegraded, p.why)
		return
	}
	r.source.Set(contract.StateOK, p.why)
}

func (r *Recorder) set(reading bool, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.why = reading, why
	r.receives = r.receives && reading
}

// Idle says that the source is read and nothing comes.
func (r *Recorder) Idle() {
	r.receive(false)
	is := r.sense.Idle
	if is.State == "" {
		is = contract.Health{State: contract.StateDegraded, Reason: "nothing has been received yet"}
	}
	r.source.Set(is.State, is.Reason)
}

// read reads the source until ctx ends, again and again.
func (r *Recorder) read(ctx context.Context) {
	pauses := ffmpeg.Backoff{First: r.sense.FirstPause}
	for ctx.Err() == nil {
		began := time.Now()
		err := r.sense.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case r.sense.Ends && errors.Is(err, ffmpeg.ErrEnded):
			r.rest(position{why: "its file has ended; switch it off and on to read it again"})
			return
		}
		r.stats.Restarts.Add(1)
		wait := pauses.Next(time.Since(began))
		r.receive(false)
		if r.source.Set(contract.StateDown, fmt.Sprintf("%s; trying again every %s", err, wait)) {
			r.log.Warn("the source cannot be read; retrying", "in", wait, "error", err)
		}
		pause(ctx, wait)
	}
}

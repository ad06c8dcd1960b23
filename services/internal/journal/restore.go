package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

// Renewal says which streams were found created again: they were lost, with everything
// in them, and this process or another one has created them since.
type Renewal struct {
	At      time.Time // when it was found
	Streams []string  // their names; a bucket's is that of its stream
}

// Log reports whether the log itself was lost.
func (r Renewal) Log() bool { return slices.Contains(r.Streams, bus.StreamSessions) }

// Timers reports whether timers were lost.
func (r Renewal) Timers() bool { return slices.Contains(r.Streams, StreamTimers) }

// The intervals of [Journal.KeepStreams].
const (
	keepEvery = 5 * time.Second // between two looks, if nothing hints at a loss
	keepPause = time.Second     // the shortest time between two looks
	keepWait  = 15 * time.Second
	lookWait  = 2 * time.Second  // for the answer about one stream
	keepSay   = 10 * time.Second // between two log lines about a failure
)

// known is what this process knows of the streams that should be there.
type known struct {
	turn chan struct{} // holds one: who restores

	mu      sync.Mutex
	created map[string]time.Time
	copies  map[string]int
	renewed []string // found created again, and not reported yet
}

func newKnown() *known {
	return &known{
		turn:    make(chan struct{}, 1),
		created: map[string]time.Time{}, copies: map[string]int{},
	}
}

// saw records a stream's creation time and number of copies. If the creation time has
// changed, the stream was lost and created again.
func (k *known) saw(info *jetstream.StreamInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := info.Config.Name
	if before, is := k.created[name]; is && !before.Equal(info.Created) && !slices.Contains(k.renewed, name) {
		k.renewed = append(k.renewed, name)
	}
	k.created[name], k.copies[name] = info.Created, info.Config.Replicas
}

// copiesOf is how many copies the stream had when it was last seen, 0 if it never was.
func (k *known) copiesOf(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copies[name]
}

func (k *known) takeRenewed() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	names, k.renewed = k.renewed, nil
	return names
}

// KeepStreams creates streams and buckets again that were deleted, or that a server with
// an empty directory does not have. It looks after each reconnect, when a message finds
// no stream, and every few seconds, until ctx ends. The streams are kept as
// [Journal.EnsureStreams] made them; existing ones are not changed. renewed is called, by
// one goroutine, after streams were created again, by this process or another one.
func (j *Journal) KeepStreams(ctx context.Context, c StreamsConfig, renewed func(Renewal)) {
	tick, pause := time.NewTicker(keepEvery), time.NewTicker(keepPause)
	defer tick.Stop()
	defer pause.Stop()
	back := j.Reconnected()
	var said time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-j.Missing().Noted():
		case <-back:
			back = j.Reconnected()
		}
		attempt, cancel := context.WithTimeout(ctx, keepWait)
		err := j.RestoreStreams(attempt, c)
		cancel()
		if err != nil && j.Connected() && ctx.Err() == nil {
			j.Missing().Note() // again, after the pause
			if time.Since(said) > keepSay {
				said = time.Now()
				j.log.Warn("cannot look after the streams; will retry", "error", err)
			}
		}
		if names := j.known.takeRenewed(); len(names) > 0 {
			renewed(Renewal{At: time.Now().UTC(), Streams: names})
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// RestoreStreams creates the streams and buckets that are missing, like
// [Journal.EnsureStreams], and leaves the others alone. A server that has just started, or a
// cluster that elects a leader, may not know a stream for a moment: one is created only
// if it is still missing after [bus.SettleTime].
func (j *Journal) RestoreStreams(ctx context.Context, c StreamsConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	select {
	case j.known.turn <- struct{}{}:
		defer func() { <-j.known.turn }()
	case <-ctx.Done():
		return fmt.Errorf("restoring streams: %w", ctx.Err())
	}
	missing, err := j.missingStreams(ctx, c)
	if err != nil || len(missing) == 0 {
		return err
	}
	if slices.Contains(missing, bus.StreamSessions) {
		j.LogMissing()
	}
	j.log.Warn("streams are missing; looking again before they are created", "streams", missing)
	if err := j.settleDown(ctx); err != nil {
		return err
	}
	err = j.createStreams(ctx, c, missing)
	j.Missing().Failed(err)
	return err
}

// settleDown waits for [bus.SettleTime], and fails if the connection changes meanwhile.
func (j *Journal) settleDown(ctx context.Context) error {
	t := time.NewTimer(bus.SettleTime)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-j.ctl.Lost():
		return errors.New("restoring streams: the connection was lost meanwhile")
	case <-ctx.Done():
		return fmt.Errorf("restoring streams: %w", ctx.Err())
	}
}

// missingStreams lists the streams that the server says do not exist. An unanswered
// question, or one that a cluster without a leader refuses, is an error.
func (j *Journal) missingStreams(ctx context.Context, c StreamsConfig) (missing []string, err error) {
	for _, name := range c.names() {
		one, cancel := context.WithTimeout(ctx, lookWait)
		s, err := j.JetStream().Stream(one, name)
		cancel()
		switch {
		case err == nil:
			j.known.saw(s.CachedInfo())
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, name)
		default:
			return nil, fmt.Errorf("looking up stream %s: %w", name, err)
		}
	}
	return missing, nil
}

// createStreams creates those of the streams that are still missing.
func (j *Journal) createStreams(ctx context.Context, c StreamsConfig, names []string) error {
	for _, want := range c.streams() {
		if slices.Contains(names, want.Name) {
			if err := j.ensureStream(ctx, want); err != nil {
				return err
			}
		}
	}
	for _, want := range c.objectBuckets() {
		if slices.Contains(names, bus.ObjectStream(want.Bucket)) {
			if err := j.ensureBucket(ctx, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// names lists the streams of all streams and buckets.
func (c StreamsConfig) names() (names []string) {
	for _, s := range c.streams() {
		names = append(names, s.Name)
	}
	for _, o := range c.objectBuckets() {
		names = append(names, bus.ObjectStream(o.Bucket))
	}
	return names
}

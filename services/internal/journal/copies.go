package journal

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/singleflight"

	"skandha.dev/pkg/bus"
)

// copiesKnown is how long the number of copies is trusted. An operator may change it
// at any time.
const copiesKnown = 5 * time.Second

// copies is the number of copies of the log. With one, any answer is complete. With
// several, a copy that lags may answer a direct get, so the leader must be asked
// instead.
//
// The number may be wrong for a moment after copies were added. It is looked up again
// after every reconnect, when the server reports a change of the stream (see
// [Journal.ConsumeCauses]), and every few seconds while it is used. Concurrent readers
// share one lookup. [Journal.NextCause] does not depend on the number.
type copies struct {
	j *Journal

	mu      sync.Mutex
	n       int    // 0 if unknown
	doubts  uint64 // possible changes so far; a lookup is valid only if none came meanwhile
	trusted uint64 // value of doubts when n was looked up
	since   time.Time
	lost    [2]<-chan struct{} // one is closed when its link is disconnected

	lookups singleflight.Group
}

func newCopies(j *Journal) *copies {
	return &copies{j: j, doubts: 1, lost: [2]<-chan struct{}{j.ctl.Lost(), j.data.Lost()}}
}

// notice counts a disconnect: the number may have changed meanwhile. The lock is held.
func (c *copies) notice() {
	for i, l := range []*bus.Link{c.j.ctl, c.j.data} {
		select {
		case <-c.lost[i]:
			c.doubts++
			c.lost[i] = l.Lost()
		default:
		}
	}
}

// doubt notes that the number may have changed.
func (c *copies) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubts++
}

// doubted returns the count to pass to learn. Call it before asking the server.
func (c *copies) doubted() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notice()
	return c.doubts
}

// watchLog subscribes to the server's notice that the log's stream was changed. Only
// processes that decide on what they read need it.
func (j *Journal) watchLog() {
	j.advisory.Do(func() {
		if _, err := j.Conn().Subscribe(streamUpdated, func(*nats.Msg) { j.copies.doubt() }); err != nil {
			j.log.Debug("subscribing to changes of the log", "error", err) // only when the connection is closed
		}
	})
}

const streamUpdated = "$JS.EVENT.ADVISORY.STREAM.UPDATED." + bus.StreamSessions

// learn takes a number from the server; doubts is their count before it was asked.
func (c *copies) learn(n int, doubts uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.trusted, c.since = max(n, 1), doubts, time.Now()
}

// known returns the last known number, 0 if none is known.
func (c *copies) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// single reports whether the log has one copy. It waits for a lookup only when a wrong
// answer could do harm: asking the leader is always safe.
func (c *copies) single(ctx context.Context) (bool, error) {
	for {
		c.mu.Lock()
		c.notice()
		n, sure := c.n, c.trusted == c.doubts
		var lookup <-chan singleflight.Result
		if doubts := c.doubts; !sure || time.Since(c.since) > copiesKnown {
			lookup = c.lookups.DoChan("", func() (any, error) { return nil, c.look(doubts) })
		}
		c.mu.Unlock()
		if n > 1 || n == 1 && sure {
			return n == 1, nil
		}
		select {
		case l := <-lookup:
			if l.Err != nil {
				return false, l.Err
			}
		case <-ctx.Done():
			return false, bus.TransportError("looking up stream "+bus.StreamSessions, ctx.Err())
		}
	}
}

// look looks the number up, for all callers; doubts is their count before.
func (c *copies) look(doubts uint64) error {
	ctx, cancel := bus.Bounded(context.Background())
	defer cancel()
	info, err := c.j.LogInfo(ctx, "")
	if err == nil {
		c.learn(info.Config.Replicas, doubts)
	}
	return err
}

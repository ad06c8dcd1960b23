package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
// [Bus.ConsumeCauses]), and every few seconds while it is used. Concurrent readers
// share one lookup. [Bus.NextCause] does not depend on the number.
type copies struct {
	b *Bus

	mu      sync.Mutex
	n       int    // 0 if unknown
	doubts  uint64 // possible changes so far; a lookup is valid only if none came meanwhile
	trusted uint64 // value of doubts when n was looked up
	since   time.Time
	flight  *lookup // the lookup in progress
}

type lookup struct {
	done chan struct{}
	err  error // valid once done is closed
}

func newCopies(b *Bus) *copies { return &copies{b: b, doubts: 1} }

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
	return c.doubts
}

// watchLog subscribes to the server's notice that the log's stream was changed. Only
// processes that decide on what they read need it.
func (b *Bus) watchLog() {
	b.advisory.Do(func() {
		if _, err := b.ctl.nc.Subscribe(streamUpdated, func(*nats.Msg) { b.copies.doubt() }); err != nil {
			b.log.Debug("subscribing to changes of the log", "error", err) // only when the connection is closed
		}
	})
}

const streamUpdated = "$JS.EVENT.ADVISORY.STREAM.UPDATED." + StreamSessions

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
		n, sure := c.n, c.trusted == c.doubts
		var l *lookup
		if !sure || time.Since(c.since) > copiesKnown {
			l = c.look()
		}
		c.mu.Unlock()
		if n > 1 || n == 1 && sure {
			return n == 1, nil
		}
		select {
		case <-l.done:
			if l.err != nil {
				return false, l.err
			}
		case <-ctx.Done():
			return false, transportError("looking up stream "+StreamSessions, ctx.Err())
		}
	}
}

// look returns the lookup in progress, or starts one. The lock is held.
func (c *copies) look() *lookup {
	if c.flight == nil {
		l := &lookup{done: make(chan struct{})}
		c.flight = l
		go c.run(l, c.doubts)
	}
	return c.flight
}

func (c *copies) run(l *lookup, doubts uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), ackWait)
	defer cancel()
	info, err := c.b.logInfo(ctx, "")
	if err == nil {
		c.learn(info.Config.Replicas, doubts)
	}
	c.mu.Lock()
	c.flight = nil
	c.mu.Unlock()
	l.err = err
	close(l.done)
}

// logInfo describes SESSIONS. Unlike the client's call it fails at once when the
// connection is lost. Either connection will do: after a loss one is back first.
func (b *Bus) logInfo(ctx context.Context, question string) (*jetstream.StreamInfo, error) {
	const doing = "looking up stream " + StreamSessions
	asked := b.ctl
	if !asked.nc.IsConnected() {
		asked = b.data
	}
	m, err := asked.ask(ctx, "$JS.API.STREAM.INFO."+StreamSessions, []byte(question))
	if err != nil {
		return nil, transportError(doing, err)
	}
	var resp struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.StreamInfo
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return nil, fmt.Errorf("%s: the server's answer: %w", doing, err)
	}
	if resp.Error != nil {
		return nil, transportError(doing, resp.Error)
	}
	return &resp.StreamInfo, nil
}

// isGone reports whether a message that was stored is no longer in the log. A copy
// that does not have it may only lag, and so may a leader that was just elected or
// just replaced. A single answer says both how far its copy has come and what was
// deleted from it.
func (b *Bus) isGone(ctx context.Context, seq uint64) (bool, error) {
	info, err := b.logInfo(ctx, `{"deleted_details":true}`)
	if err != nil {
		return false, err
	}
	if info.Config.Replicas <= 1 {
		return true, nil // there is no other copy
	}
	s := info.State
	return s.LastSeq >= seq && (seq < s.FirstSeq || slices.Contains(s.Deleted, seq)), nil
}

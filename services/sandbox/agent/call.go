package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// call is one operation in progress. The reader adds frames and never waits; the caller of
// the operation removes them. allowed bounds what the queue may hold, so it needs no other
// bound.
type call struct {
	id   uint32
	wake chan struct{}

	mu      sync.Mutex
	queue   []frame
	done    bool // answered
	allowed allowed
	window  int // bytes of data that may be sent
	owed    int // sent and not yet credited
}

// allowed is what the agent may still send.
type allowed struct {
	live   [2]int // bytes of live output, of each stream
	kept   [2]int // bytes of kept output
	said   bool
	data   int64 // bytes of data in all
	window int   // bytes of data without further credit
}

// put accepts a frame, or returns why it is invalid.
func (c *call) put(f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(f); err != nil {
		return err
	}
	if f.kind == fromCredit {
		n := int(binary.BigEndian.Uint32(f.payload))
		c.owed -= n
		c.window += n
	} else {
		c.queue = append(c.queue, f)
		c.done = f.kind == fromAnswer
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

func (c *call) check(f frame) error {
	n := len(f.payload)
	switch f.kind {
	case fromLive, fromKept:
		if n < 2 || f.payload[0] > 1 {
			return errors.New("output of an unknown stream")
		}
		left := &c.allowed.live[f.payload[0]]
		if f.kind == fromKept {
			left = &c.allowed.kept[f.payload[0]]
		}
		if *left -= n - 1; *left < 0 {
			return errors.New("more output than requested")
		}
	case fromSaid:
		if !c.allowed.said || n > maxSaid {
			return errors.New("a result that was not requested")
		}
		c.allowed.said = false
	case fromData:
		c.allowed.data -= int64(n)
		c.allowed.window -= n
		if n == 0 || c.allowed.data < 0 || c.allowed.window < -chunk {
			return errors.New("more data than requested")
		}
	case fromCredit:
		if n != 4 || int64(binary.BigEndian.Uint32(f.payload)) > int64(c.owed) {
			return errors.New("credit for data that was not sent")
		}
	case fromAnswer:
		// The operation's caller checks its fields.
	default:
		return fmt.Errorf("a frame of kind %q", f.kind)
	}
	return nil
}

func (c *call) isAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *call) take() []frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue
	c.queue = nil
	return q
}

// spend takes up to n bytes from the window for sending.
func (c *call) spend(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.window)
	c.window -= n
	c.owed += n
	return n
}

// unspend returns unsent bytes to the window.
func (c *call) unspend(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window += n
	c.owed -= n
}

// grant lets the agent send n more bytes of data.
func (c *call) grant(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed.window += n
}

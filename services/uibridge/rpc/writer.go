package rpc

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/coder/websocket"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// write writes answers, and closes the connection.
func (c *conn) write() {
	for {
		select {
		case <-c.life.Done():
			return
		case <-c.due: // a signal, not the answer itself: no notification may overtake it
			if !c.alone(c.answers) {
				return
			}
		case why := <-c.closing:
			c.alone(func() bool {
				if c.answers() {
					c.close(why)
				}
				c.end()
				return false
			})
			return
		}
	}
}

// alone calls write with the lock held, unless the connection has ended.
func (c *conn) alone(write func() bool) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.life.Err() == nil && write()
}

// note writes a notification in the caller's goroutine, which saves a wake-up. Answers go
// first: a feed begins after the answer to its attach. It reports false when the
// connection, or ctx, has ended.
func (c *conn) note(ctx context.Context, n contract.Notification) bool {
	return c.alone(func() bool { return ctx.Err() == nil && c.answers() && c.notify(n) })
}

// answers writes the waiting answers.
func (c *conn) answers() bool {
	for {
		select {
		case b := <-c.out:
			if !c.send(b) {
				return false
			}
		default:
			return true
		}
	}
}

// send writes one frame. It reports false when the connection has ended.
func (c *conn) send(b []byte) bool {
	ctx, cancel := context.WithTimeout(c.life, c.handler.cfg.WriteWait)
	defer cancel()
	err := c.ws.Write(ctx, websocket.MessageText, b)
	if err == nil {
		return true
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.drop("writing")
	} else {
		c.end() // the peer has disconnected
	}
	return false
}

func (c *conn) notify(n contract.Notification) bool {
	switch n.Method {
	case contract.OnAttached:
		var a contract.Attached
		if json.Unmarshal(n.Params, &a) == nil {
			c.attached, c.after = true, a.After
			c.sent.begin(a)
		}
	case contract.OnDropped:
		c.attached = false
	case contract.OnToolCallRequest, contract.OnConfirmationResolved:
		c.sent.see(n)
	}
	c.buf = jsonrpc.AppendNotification(c.buf[:0], n)
	if !c.send(c.buf) {
		return false
	}
	if n.ID != "" {
		c.after = n.ID
	}
	if cap(c.buf) > keepBuffer {
		c.buf = nil
	}
	return true
}

// keepBuffer is the largest buffer that a connection keeps, in bytes.
const keepBuffer = 64 << 10

// close sends the reason for the end, and closes the connection.
func (c *conn) close(why *contract.Error) {
	if why.Code == contract.CodeSlow {
		c.slow("reading notifications")
	}
	if c.attached && !c.notify(dropped(why, why.Resume(c.after))) {
		return
	}
	code, reason := closeCode(why), why.Message
	if code == StatusSlow {
		reason = "after=" + c.after + ": " + reason
	}
	_ = c.ws.Close(code, clip(reason)) // waits for the peer's close frame, at most 5 s, and closes anyway
}

func dropped(why *contract.Error, after string) contract.Notification {
	b, err := json.Marshal(contract.Dropped{Code: why.Code, Message: why.Message, After: after})
	if err != nil { // cannot happen: the struct has only strings
		b = []byte("{}")
	}
	return contract.Notification{Method: contract.OnDropped, Params: b}
}

// clip shortens a reason to fit into a close frame.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	end := most - len("…")
	for end > 0 && s[end]&0xC0 == 0x80 { // not within a character
		end--
	}
	return s[:end] + "…"
}

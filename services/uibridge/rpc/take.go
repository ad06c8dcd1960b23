package rpc

import (
	"bytes"
	"context"
	"sync"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// The methods that the connection handles itself.
const (
	Attach = "attach"
	Detach = "detach"
)

// take handles a message. It never waits: reading continues, so that pings are answered.
func (c *conn) take(body []byte) {
	calls, batch := jsonrpc.Parse(body)
	g := &gather{c: c, batch: batch, answers: make([][]byte, len(calls)), missing: len(calls)}
	for i, k := range calls {
		c.begin(k, func(b []byte) { g.put(i, b) })
	}
}

// gather collects the answers to a message and sends them when all are there.
type gather struct {
	c       *conn
	batch   bool
	mu      sync.Mutex
	answers [][]byte
	missing int
}

func (g *gather) put(i int, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[i] = b
	if g.missing--; g.missing > 0 {
		return
	}
	var all [][]byte
	for _, b := range g.answers {
		if b != nil {
			all = append(all, b)
		}
	}
	switch {
	case len(all) == 0: // only notifications
	case g.batch:
		g.c.reply(append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']'))
	default:
		g.c.reply(all[0])
	}
}

// reply passes an answer to the writer. A peer that leaves so many unread is dropped.
func (c *conn) reply(b []byte) {
	select {
	case c.out <- b:
		select {
		case c.due <- struct{}{}:
		default:
		}
	default:
		if c.life.Err() == nil {
			c.drop("reading answers")
		}
	}
}

// begin begins a call. It calls done once with the answer, nil for a notification.
func (c *conn) begin(k jsonrpc.Call, done func([]byte)) {
	if k.Failed != nil {
		done(k.Failed)
		return
	}
	c.handler.requests.Add(1)
	if !c.enter() {
		done(c.answer(k, nil, contract.ErrGoingAway))
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		done(c.answer(k, nil, errTooMany))
		c.busy.Done()
		return
	}
	answer := func(result any, err error) {
		done(c.answer(k, result, err))
		<-c.slots
		c.busy.Done()
	}
	if err := c.handler.cfg.Limit(c.life, c.principal, k.Method); err != nil {
		answer(nil, err)
		return
	}
	switch {
	case k.Method == Attach:
		c.lane <- func() { c.attachAgain(k.Params, answer) }
	case k.Method == Detach:
		c.lane <- func() { answer(c.detach(k.Params)) }
	case request.Writes(k.Method):
		// An accepted request is stored even if the peer does not wait for the answer.
		c.lane <- func() { c.call(context.WithoutCancel(c.life), k, answer) }
	default:
		go c.call(c.life, k, answer)
	}
}

// call calls the desk.
func (c *conn) call(ctx context.Context, k jsonrpc.Call, answer func(any, error)) {
	ctx, cancel := context.WithTimeout(ctx, c.handler.cfg.Timeout)
	defer cancel()
	o := request.Origin{Source: c.first.Name, Shown: c.sent.hash}
	if request.Writes(k.Method) {
		o.Ref = c.ref // only the lane uses c.ref
	}
	answer(c.handler.desk.Call(ctx, c.principal, o, k.Method, k.Params))
}

var errTooMany = &contract.Error{
	Code: contract.CodeRateLimited, RetryAfterMS: 100, Message: "too many requests in flight; wait for answers",
}

// answer encodes an answer; it returns nil for a notification.
func (c *conn) answer(k jsonrpc.Call, result any, err error) []byte {
	if err != nil {
		c.handler.failed.Add(1)
		e := contract.ErrorOf(err)
		c.handler.log.Debug("request refused", "from", c.from, "principal", c.principal.Name, "method", k.Method,
			"code", e.Code, "field", e.Field)
		if k.ID == nil {
			return nil
		}
		return jsonrpc.Failure(k.ID, jsonrpc.Number(e.Code), e)
	}
	if k.ID == nil {
		return nil
	}
	b, err := jsonrpc.Success(k.ID, result)
	if err != nil {
		c.handler.log.Error("encoding a result failed", "method", k.Method, "error", err)
		e := contract.ErrorOf(err)
		return jsonrpc.Failure(k.ID, jsonrpc.Number(e.Code), e)
	}
	return b
}

package agent

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"
)

const (
	maxOps       = 12               // concurrent file operations; the agent accepts some more
	backstop     = 15 * time.Second // for the agent's answer, beyond its own limits
	stopWithin   = 5 * time.Second  // for a stop, beyond the grace time
	fileTimeout  = 30 * time.Second
	treeTimeout  = 2 * time.Minute // of operations on the whole workspace
	defaultGrace = 500 * time.Millisecond
)

// Conn talks to the agent of one sandbox. Its methods are safe for concurrent use. It owns
// two goroutines, which end when the pipe does. The creator of the sandbox destroys it, in
// particular after [ErrBroken].
type Conn struct {
	rw    io.ReadWriter
	place Config
	out   chan []byte
	ops   chan struct{} // slots for file operations
	turn  chan struct{} // held by a run
	hello chan frame    // frames of the handshake

	done chan struct{}

	mu    sync.Mutex
	err   error
	calls map[uint32]*call
	last  uint32
	ready bool
}

// Open sends the agent to an interpreter that was started with [Args] and waits until it is
// ready. rw is its standard input and output.
func Open(ctx context.Context, rw io.ReadWriter) (*Conn, error) {
	return OpenIn(ctx, rw, Config{})
}

// OpenIn is Open for a sandbox with other directories than those that drivers use.
func OpenIn(ctx context.Context, rw io.ReadWriter, place Config) (*Conn, error) {
	c := &Conn{
		rw: rw, place: place.withDefaults(), out: make(chan []byte, 16), ops: make(chan struct{}, maxOps),
		turn:  make(chan struct{}, 1),
		hello: make(chan frame, 4), done: make(chan struct{}), calls: map[uint32]*call{},
	}
	go c.write()
	go c.read()
	if err := c.handOver(ctx); err != nil {
		return nil, c.fail(fmt.Errorf("starting the agent: %w", err))
	}
	return c, nil
}

// Done returns a channel that is closed when the agent can no longer be used.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why Done is closed, or nil while it is open. The error wraps [ErrBroken].
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection; the first reason is kept.
func (c *Conn) fail(why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrBroken, why)
		close(c.done)
	}
	return c.err
}

func (c *Conn) write() {
	for {
		select {
		case b := <-c.out:
			if _, err := c.rw.Write(b); err != nil {
				_ = c.fail(fmt.Errorf("writing to the agent: %w", err))
				return
			}
		case <-c.done:
			return
		}
	}
}

// read reads frames until one is invalid or the pipe ends. It waits only for the pipe.
func (c *Conn) read() {
	r := bufio.NewReaderSize(c.rw, chunk)
	for {
		f, err := readFrame(r)
		if err == nil {
			err = c.dispatch(f)
		} else if errors.Is(err, io.EOF) {
			err = errors.New("the agent has ended")
		}
		if err != nil {
			_ = c.fail(err)
			return
		}
	}
}

func (c *Conn) dispatch(f frame) error {
	c.mu.Lock()
	ready, op, known := c.ready, c.calls[f.id], f.id != 0 && f.id <= c.last
	if f.kind == fromReady {
		c.ready = true
	}
	if f.kind == fromAnswer {
		delete(c.calls, f.id)
	}
	c.mu.Unlock()
	if !ready {
		select {
		case c.hello <- f:
			return nil
		default:
			return errors.New("the agent sent too much during the handshake")
		}
	}
	if op == nil {
		if known {
			return fmt.Errorf("the agent sent a frame of kind %q for a finished operation", f.kind)
		}
		return fmt.Errorf("the agent sent a frame of kind %q for an unknown operation", f.kind)
	}
	if err := op.put(f); err != nil {
		return fmt.Errorf("the agent sent %w", err)
	}
	return nil
}

// send queues a frame; it returns false if the connection or the wait has ended.
func (c *Conn) send(quit <-chan struct{}, b []byte) bool {
	select {
	case c.out <- b:
		return true
	case <-quit:
		return false
	case <-c.done:
		return false
	}
}

// work is one operation.
type work struct {
	op       string
	fields   map[string]any
	timeout  time.Duration
	grace    time.Duration
	tail     []byte             // sent with the request
	in       io.Reader          // sent after it; may be nil
	data     func([]byte) error // receives data
	frame    func(frame)        // receives all other frames
	allowed  allowed
	stopping error // why it was asked to stop
}

func (w *work) request() ([]byte, error) {
	q := map[string]any{"op": w.op, "timeout_ms": w.timeout.Milliseconds(), "grace_ms": w.grace.Milliseconds()}
	if w.in != nil {
		q["stream"] = true
	}
	maps.Copy(q, w.fields)
	head, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	if len(head)+len(w.tail)+4 > maxPayload {
		return nil, &Error{
			Code: "too_large", Message: fmt.Sprintf("the request has %d bytes, the limit is %d", len(head), maxPayload),
		}
	}
	return append(block(head), w.tail...), nil
}

func (c *Conn) begin(w *work) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last++; c.last == 0 {
		c.last = 1
	}
	op := &call{id: c.last, wake: make(chan struct{}, 1), allowed: w.allowed, window: window}
	op.allowed.window = window
	c.calls[op.id] = op
	return op
}

func (c *Conn) forget(op *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, op.id)
}

// exchange performs an operation and returns the agent's answer. If the context ends, it
// asks the agent to stop and waits a little longer for the answer; then there is an answer,
// and w.stopping is set.
func (c *Conn) exchange(ctx context.Context, w *work) ([]byte, error) {
	payload, err := w.request()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	op := c.begin(w)
	if !c.send(ctx.Done(), encodeFrame(toRequest, op.id, payload)) {
		c.forget(op)
		if err := c.Err(); err != nil {
			return nil, err
		}
		return nil, ctx.Err()
	}
	// Failing ends every wait, including one for space in the pipe.
	late := time.AfterFunc(w.timeout+w.grace+backstop, func() {
		if !op.isAnswered() {
			_ = c.fail(fmt.Errorf("the agent did not answer %s in time", w.op))
		}
	})
	defer late.Stop()
	stop := func(why error) {
		if w.stopping == nil {
			w.stopping = why
			late.Reset(w.grace + stopWithin)
			c.send(nil, encodeFrame(toStop, op.id))
		}
	}
	return c.follow(ctx, op, w, stop)
}

// follow handles an operation's frames until it is answered.
func (c *Conn) follow(ctx context.Context, op *call, w *work, stop func(error)) ([]byte, error) {
	cancelled := ctx.Done()
	for {
		over := c.isDone() // read first, so that the frames below are complete
		for _, f := range op.take() {
			switch f.kind {
			case fromAnswer:
				return f.payload, nil
			case fromData:
				if err := w.take(f.payload); err != nil {
					stop(err)
				}
				op.grant(len(f.payload))
				c.send(nil, encodeFrame(toCredit, op.id, binary.BigEndian.AppendUint32(nil, uint32(len(f.payload)))))
			default:
				w.frame(f)
			}
		}
		if over {
			return nil, c.Err()
		}
		if w.in != nil && w.stopping == nil {
			if c.pump(op, w, stop) {
				continue
			}
		}
		select {
		case <-op.wake:
		case <-c.done:
		case <-cancelled:
			cancelled = nil
			stop(ctx.Err())
		}
	}
}

func (w *work) take(b []byte) error {
	if w.data != nil && w.stopping == nil {
		return w.data(b)
	}
	return nil
}

func (c *Conn) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// pump sends a piece of the operation's input. It returns false if the agent accepts none
// now, or nothing is left to send.
func (c *Conn) pump(op *call, w *work, stop func(error)) bool {
	n := op.spend(chunk)
	if n == 0 {
		return false
	}
	b := make([]byte, n)
	got, err := w.in.Read(b)
	op.unspend(n - got)
	if got > 0 && !c.send(nil, encodeFrame(toData, op.id, b[:got])) {
		return false
	}
	switch {
	case errors.Is(err, io.EOF):
		w.in = nil
		return c.send(nil, encodeFrame(toEnd, op.id))
	case err != nil:
		stop(err)
		return false
	}
	return true
}

// ask performs a file operation and decodes the answer into v.
func (c *Conn) ask(ctx context.Context, w *work, v any) error {
	select {
	case c.ops <- struct{}{}:
		defer func() { <-c.ops }()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.Err()
	}
	w.timeout = cmp.Or(w.timeout, fileTimeout)
	w.grace = cmp.Or(w.grace, defaultGrace)
	if w.frame == nil {
		w.frame = func(frame) {}
	}
	text, err := c.exchange(ctx, w)
	if err != nil {
		return err
	}
	if w.stopping != nil {
		return w.stopping
	}
	return c.answer(text, v)
}

// answer decodes an answer: a refusal, or v.
func (c *Conn) answer(text []byte, v any) error {
	var refusal struct {
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := decode(text, &refusal); err != nil {
		return c.fail(fmt.Errorf("invalid answer of the agent: %w", err))
	}
	if e := refusal.Error; e != nil && e.Code == codeBroken {
		return c.fail(fmt.Errorf("the agent gave up: %s", cut(e.Message, maxMessage)))
	} else if e != nil {
		return refused(e.Code, e.Message)
	}
	if v != nil {
		if err := decode(text, v); err != nil {
			return c.fail(fmt.Errorf("invalid answer of the agent: %w", err))
		}
	}
	return nil
}

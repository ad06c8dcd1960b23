package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// conn writes messages, each on a line, and keeps the requests that the client has to answer.
type conn struct {
	log   *slog.Logger
	queue chan []byte // lines to write; nil: everything before is written
	clear chan struct{}
	gone  context.Context //nolint:containedctx // ends when nothing can be written any more
	leave context.CancelFunc

	asking sync.Mutex
	asked  map[string]*question // by id
	last   int64
}

// maxQueue limits the messages that wait for the client to read them. Then whatever writes waits,
// too, and so do the feeds.
const maxQueue = 256

func newConn(log *slog.Logger, out io.Writer) *conn {
	c := &conn{
		log: log, queue: make(chan []byte, maxQueue), clear: make(chan struct{}), asked: map[string]*question{},
	}
	c.gone, c.leave = context.WithCancel(context.Background())
	go c.drain(out) // until the client is gone, or the process, if the client does not read
	return c
}

func (c *conn) drain(out io.Writer) {
	for {
		select {
		case <-c.gone.Done():
			return
		case b := <-c.queue:
			if b == nil {
				close(c.clear)
				continue
			}
			if _, err := out.Write(b); err != nil {
				c.log.Debug("writing to the client failed", "error", err)
				c.leave()
			}
		}
	}
}

// end waits briefly until everything is written. It may be called once.
func (c *conn) end(wait time.Duration) {
	defer c.leave()
	ctx, cancel := context.WithTimeout(c.gone, wait)
	defer cancel()
	select {
	case c.queue <- nil:
	case <-ctx.Done():
		return
	}
	select {
	case <-c.clear:
	case <-ctx.Done():
	}
}

// message is a request or a notification.
type message struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

func (c *conn) send(m message) {
	m.Version = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		c.log.Error("encoding a message failed", "method", m.Method, "error", err)
		return
	}
	c.write(b)
}

// write queues a line. It waits for a client that does not read.
func (c *conn) write(b []byte) {
	select {
	case c.queue <- append(b, '\n'):
	case <-c.gone.Done():
	}
}

func (c *conn) notify(method string, params any) { c.send(message{Method: method, Params: params}) }

// question is a request that the client has to answer.
type question struct {
	c      *conn
	id     int64
	answer chan reply // gets at most one
}

type reply struct {
	result json.RawMessage
	err    error
}

// ask sends a request.
func (c *conn) ask(method string, params any) *question {
	c.asking.Lock()
	c.last++
	q := &question{c: c, id: c.last, answer: make(chan reply, 1)}
	c.asked[strconv.FormatInt(q.id, 10)] = q
	c.asking.Unlock()
	c.send(message{ID: q.id, Method: method, Params: params})
	return q
}

// withdraw tells the client that no answer is needed any more; one that comes is ignored.
func (q *question) withdraw() {
	if q.c.take(strconv.FormatInt(q.id, 10)) != nil {
		q.c.notify(onCancel, struct {
			RequestID int64 `json:"requestId"`
		}{q.id})
	}
}

func (c *conn) take(id string) *question {
	c.asking.Lock()
	defer c.asking.Unlock()
	q := c.asked[id]
	delete(c.asked, id)
	return q
}

// answered handles a message that is an answer, and reports whether it is one.
func (c *conn) answered(line []byte) bool {
	var m map[string]json.RawMessage
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &m) != nil || m["method"] != nil ||
		m["result"] == nil && m["error"] == nil {
		return false
	}
	q := c.take(string(m["id"]))
	if q == nil {
		c.log.Debug("ignored an answer to a request that does not wait for one", "id", string(m["id"]))
		return true
	}
	r := reply{result: m["result"]}
	if raw := m["error"]; raw != nil && string(raw) != "null" {
		var e struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(raw, &e) // without a message, the text below is enough
		r.err = errors.New("the client answered with an error: " + e.Message)
	}
	q.answer <- r
	return true
}

// The numbers of errors that JSON-RPC and ACP define.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeInternal = -32603
	codeNotFound = -32002
	codeAuth     = -32000
)

// fault is an error of JSON-RPC.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (f *fault) Error() string { return f.Message }

// faultOf returns an error as the client sees it.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	e := contract.ErrorOf(err)
	f := &fault{Code: jsonrpc.Number(e.Code), Message: e.Error(), Data: e}
	switch e.Code {
	case contract.CodeNotFound:
		f.Code = codeNotFound
	case contract.CodeUnauthenticated:
		f.Code = codeAuth
	}
	return f
}

func (c *conn) fail(id json.RawMessage, err error) {
	f := faultOf(err)
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	b, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *fault          `json:"error"`
	}{"2.0", id, f})
	if err != nil {
		c.log.Error("encoding an error failed", "error", err)
		return
	}
	c.write(b)
}

func (c *conn) succeed(id json.RawMessage, result any) {
	b, err := jsonrpc.Success(id, result)
	if err != nil {
		c.log.Error("encoding a result failed", "error", err)
		c.fail(id, err)
		return
	}
	c.write(b)
}

// line is a line of the input, without its end.
type line struct {
	text []byte
	long bool // it has more than the allowed bytes, and is left out but for its ends
	head []byte
	tail []byte
}

// maxEnd is how much is kept of each end of a line that is too long, in bytes.
const maxEnd = 4 << 10

// lines reads lines of at most most bytes until the input ends.
func lines(in io.Reader, most int, put func(line) bool) {
	r := bufio.NewReaderSize(in, 64<<10)
	var l line
	for {
		part, err := r.ReadSlice('\n')
		if l.long || len(l.text)+len(part) > most+1 {
			l.cut(part)
		} else {
			l.text = append(l.text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.text = bytes.TrimSpace(l.text)
		if (len(l.text) > 0 || l.long) && !put(l) || err != nil {
			return
		}
		l = line{}
	}
}

// cut leaves a line out, and keeps its ends.
func (l *line) cut(part []byte) {
	if !l.long {
		l.long, l.head = true, bytes.Clone(l.text[:min(len(l.text), maxEnd)])
		l.tail, l.text = bytes.Clone(l.text[max(0, len(l.text)-maxEnd):]), nil
	}
	if n := maxEnd - len(l.head); n > 0 {
		l.head = append(l.head, part[:min(n, len(part))]...)
	}
	l.tail = append(l.tail, part...)
	l.tail = l.tail[max(0, len(l.tail)-maxEnd):]
}

// idAtEnd matches the id of a request at the end of its line, with the other short members after it.
var idAtEnd = regexp.MustCompile(`[,{]\s*"id"\s*:\s*("[^"\\]*"|-?[0-9]+)\s*(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*$`)

// id returns the id of a request that is too long, from its ends; nil if it is in neither.
func (l *line) id() json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(l.head))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			break
		}
		if key == "id" && len(value) > 0 && (value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9') {
			return value
		}
	}
	if m := idAtEnd.FindSubmatch(l.tail); m != nil {
		return m[1]
	}
	return nil
}

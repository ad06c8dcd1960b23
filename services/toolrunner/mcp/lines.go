package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxStray = 10_000          // lines in a row that are no messages
	maxSkip  = 16 * maxMessage // of a line that is too long, in bytes
)

// lines is the connection to a command: a message is a line. What is no message is skipped, and noted in
// the session. An answer that does not say which request it is for, or is too long, is that of the only one that has
// none yet; it is an error of the client's, since the server may have done what was asked.
type lines struct {
	session *session
	out     io.ReadCloser // of the command
	writing sync.Mutex
	in      io.WriteCloser
	read    chan incoming
	closed  chan struct{}
	once    sync.Once

	mu    sync.Mutex
	asked map[jsonrpc.ID]string // the methods of requests without an answer
}

type incoming struct {
	message jsonrpc.Message
	err     error
}

// Connect implements [sdk.Transport].
func (l *lines) Connect(context.Context) (sdk.Connection, error) {
	l.read, l.closed, l.asked = make(chan incoming), make(chan struct{}), map[jsonrpc.ID]string{}
	go l.listen()
	return l, nil
}

// SessionID implements [sdk.Connection].
func (l *lines) SessionID() string { return "" }

// Read implements [sdk.Connection].
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, io.EOF
	case r := <-l.read:
		return r.message, r.err
	}
}

// Write implements [sdk.Connection].
func (l *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if r, ok := m.(*jsonrpc.Request); ok {
		l.asks(r)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err = l.in.Write(append(b, '\n'))
	return err
}

// Close implements [sdk.Connection].
func (l *lines) Close() error {
	l.once.Do(func() { close(l.closed) })
	return errors.Join(l.out.Close(), l.in.Close())
}

// asks remembers a request, or that nobody waits for its answer any more.
func (l *lines) asks(r *jsonrpc.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.IsCall() {
		l.asked[r.ID] = r.Method
		return
	}
	var cancelled struct {
		ID any `json:"requestId"`
	}
	if r.Method == "notifications/cancelled" && json.Unmarshal(r.Params, &cancelled) == nil {
		if id, err := jsonrpc.MakeID(cancelled.ID); err == nil {
			delete(l.asked, id)
		}
	}
}

// answers returns the method of the request that an answer is for, which then has one.
func (l *lines) answers(id jsonrpc.ID) (method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	method = l.asked[id]
	delete(l.asked, id)
	return method
}

// only returns the request that has no answer, if there is exactly one.
func (l *lines) only() (id jsonrpc.ID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id = range l.asked {
		ok = len(l.asked) == 1
	}
	return id, ok
}

// listen reads until the connection ends.
func (l *lines) listen() {
	r, strays := bufio.NewReaderSize(l.out, 64<<10), 0
	for {
		line, size, err := readLine(r)
		skipped := 0
		if size > maxMessage {
			why := fmt.Errorf("a message has %d bytes, at most %d are read", size, maxMessage)
			if size > maxSkip {
				err = fmt.Errorf("a message has more than %d bytes, at most %d are read", maxSkip, maxMessage)
			} else if !l.spoil(why) {
				err = why
			}
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			skipped = l.take(line)
		}
		if strays += skipped; skipped == 0 {
			strays = 0
		}
		if strays > maxStray {
			err = fmt.Errorf("its standard output has more than %d lines in a row that are no messages", maxStray)
		}
		if err != nil {
			l.give(incoming{err: err})
			return
		}
	}
}

// readLine returns a line, which is cut if it is longer than a message may be, and its size.
func readLine(r *bufio.Reader) (line []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if size += len(part); size <= maxMessage {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) || size > maxSkip {
			return line, size, err
		}
	}
}

func (l *lines) give(i incoming) {
	select {
	case l.read <- i:
	case <-l.closed:
	}
}

// take passes on the message of a line, or the messages of a list; it returns how many parts were skipped.
func (l *lines) take(line []byte) (skipped int) {
	if line[0] == '[' { // protocol 2025-03-26 allows it
		var list []json.RawMessage
		if json.Unmarshal(line, &list) == nil {
			for _, m := range list {
				skipped += l.takeOne(m)
			}
			return skipped
		}
	}
	return l.takeOne(line)
}

func (l *lines) takeOne(line []byte) (skipped int) {
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		if !isAnswer(line) || !l.spoil(fmt.Errorf("its answer is no message of JSON-RPC: %w", err), idOf(line)) {
			l.session.skip(line)
			return 1
		}
		return 0
	}
	if r, ok := m.(*jsonrpc.Response); ok {
		if l.answers(r.ID) == listTools {
			r.Result = l.session.sound(r.Result)
		}
		if r.Error != nil {
			r.Error = saidError{r.Error}
		}
	}
	l.give(incoming{message: m})
	return 0
}

// listTools is the method whose answers are checked entry by entry.
const listTools = "tools/list"

// spoil answers a request with an error of the client's: one of ids, or else the only one that has no answer.
func (l *lines) spoil(why error, ids ...jsonrpc.ID) bool {
	id, ok := l.only()
	for _, i := range ids {
		if l.answers(i) != "" {
			id, ok = i, true
		}
	}
	if !ok {
		return false
	}
	l.answers(id)
	l.give(incoming{message: &jsonrpc.Response{ID: id, Error: spoiltError{why.Error()}}})
	return true
}

// isAnswer reports whether a line is meant as an answer.
func isAnswer(line []byte) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil || m["method"] != nil {
		return false
	}
	return m["result"] != nil || m["error"] != nil
}

// idOf returns the id of a message that is otherwise wrong.
func idOf(line []byte) (id jsonrpc.ID) {
	var m struct {
		ID any `json:"id"`
	}
	if json.Unmarshal(line, &m) == nil {
		if made, err := jsonrpc.MakeID(m.ID); err == nil {
			id = made
		}
	}
	return id
}

// saidError is an error that the server has answered with.
type saidError struct{ error }

func (e saidError) Unwrap() error { return e.error }

// spoiltError is the error of a request whose answer cannot be used. It has no code.
type spoiltError struct{ why string }

func (e spoiltError) Error() string { return e.why }

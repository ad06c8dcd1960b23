package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// maxEvent bounds one event of a stream, in bytes.
const maxEvent = 8 << 20

// tape keeps the parts of an answer as they arrived, while the SDK reads the rest. The SDK
// gets the events without the arguments of calls, which its types could not hold, and
// without comments, which it takes for errors. It reads no error of the connection, which it
// would print: the error is kept here.
type tape struct {
	body   io.Closer
	events *bufio.Scanner
	ready  bytes.Buffer // for the SDK
	parts  []json.RawMessage
	err    error // why the body ended early
}

// record returns the body that the SDK is to read.
func (t *tape) record(body io.ReadCloser) io.ReadCloser {
	t.body, t.events = body, bufio.NewScanner(body)
	t.events.Buffer(nil, maxEvent)
	return t
}

// take returns the parts that arrived since it was called last.
func (t *tape) take() []json.RawMessage {
	parts := t.parts
	t.parts = nil
	return parts
}

// Close implements [io.Closer].
func (t *tape) Close() error { return t.body.Close() }

// Read implements [io.Reader].
func (t *tape) Read(p []byte) (int, error) {
	for t.ready.Len() == 0 {
		if t.err != nil || !t.next() {
			return 0, io.EOF
		}
	}
	return t.ready.Read(p)
}

// next reads a line. It reports false at the end.
func (t *tape) next() bool {
	if !t.events.Scan() {
		if t.err = t.events.Err(); errors.Is(t.err, bufio.ErrTooLong) {
			t.err = adapter.Errorf(contract.ErrTooLong, "an event of the stream is longer than %d bytes", maxEvent)
		}
		return false
	}
	data, ok := bytes.CutPrefix(t.events.Bytes(), []byte("data:"))
	if !ok { // an empty line, a comment, or a field without a meaning here
		return true
	}
	event, err := t.keep(bytes.TrimSpace(data))
	if err != nil {
		t.err = err
		return false
	}
	fmt.Fprintf(&t.ready, "data: %s\n\n", event)
	return true
}

// object is a JSON object whose values stay as they are.
type object = map[string]json.RawMessage

// keep puts an event's parts on the tape, and returns the event without arguments.
func (t *tape) keep(data []byte) (json.RawMessage, error) {
	var event object
	if err := json.Unmarshal(data, &event); err != nil {
		return nil, err
	}
	err := within(event, "candidates", func(candidates *[]object) error {
		if len(*candidates) == 0 {
			return nil
		}
		return within((*candidates)[0], "content", func(content *object) error {
			return within(*content, "parts", t.keepParts)
		})
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(event)
}

func (t *tape) keepParts(parts *[]json.RawMessage) error {
	t.parts = append(t.parts, *parts...)
	*parts = nil // they are on the tape
	return nil
}

// within lets f change a value of an object, if it is there.
func within[T any](o object, key string, f func(*T) error) error {
	raw, ok := o[key]
	if !ok || string(raw) == "null" {
		return nil
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if err := f(&v); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o[key] = b
	return nil
}

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
	"skandha.dev/services/provider/httpapi"
)

// Bounds of what is read, in bytes.
const (
	maxEvent = 8 << 20  // one event of a stream
	maxBare  = 64 << 10 // an error between the events
)

// tape keeps the parts of an answer as they arrived, while the SDK reads the rest. The SDK
// gets events of nothing but the fields that are used, because it panics at some others of
// an odd type. It reads no error, neither of the connection nor of the API: it would print
// the first and lose parts of the second.
type tape struct {
	api    httpapi.API
	body   io.Closer
	events *bufio.Scanner
	ready  bytes.Buffer // for the SDK
	parts  []json.RawMessage
	bare   []byte // the beginning of an error between the events
	err    error  // why the body ended early
}

// record returns the body that the SDK is to read.
func (t *tape) record(body io.ReadCloser, api httpapi.API) io.ReadCloser {
	t.api, t.body, t.events = api, body, bufio.NewScanner(body)
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
	line := bytes.TrimSpace(t.events.Bytes())
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		t.err = t.between(line)
		return t.err == nil
	}
	event, err := t.keep(data)
	if err != nil {
		t.err = err
		return false
	}
	fmt.Fprintf(&t.ready, "data: %s\n\n", event)
	return true
}

// between reads a line that is not data. The API may put an error between the events, as
// JSON of one line or more; anything else is a comment, or a field without a meaning here.
func (t *tape) between(line []byte) error {
	if len(t.bare) == 0 && !bytes.HasPrefix(line, []byte("{")) && !bytes.HasPrefix(line, []byte("[{")) {
		return nil
	}
	if t.bare = append(t.bare, line...); len(t.bare) > maxBare {
		return adapter.Errorf(contract.ErrGarbage, "the stream holds something other than events")
	}
	if !json.Valid(t.bare) {
		return nil
	}
	body := bytes.Trim(t.bare, "[]")
	t.bare = nil
	if f := httpapi.ParseFault(body); f.Known() {
		return t.api.InStream(f)
	}
	return nil
}

// event is an event of a stream.
type event struct {
	Candidates    []*candidate `json:"candidates,omitempty"`
	UsageMetadata *usage       `json:"usageMetadata,omitempty"`
	ModelVersion  string       `json:"modelVersion,omitempty"`
	Feedback      *feedback    `json:"promptFeedback,omitempty"`

	Error json.RawMessage `json:"error,omitempty"`
}

type candidate struct {
	Content *struct {
		Parts []json.RawMessage `json:"parts"`
	} `json:"content,omitempty"`
	FinishReason string `json:"finishReason,omitempty"`
}

type usage struct {
	Prompt     int64 `json:"promptTokenCount"`
	ToolPrompt int64 `json:"toolUsePromptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
}

type feedback struct {
	BlockReason        string `json:"blockReason,omitempty"`
	BlockReasonMessage string `json:"blockReasonMessage,omitempty"`
}

// keep puts an event's parts on the tape, and returns the rest.
func (t *tape) keep(data []byte) (json.RawMessage, error) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	if len(e.Error) > 0 {
		if f := httpapi.ParseFault(data); f.Known() {
			return nil, t.api.InStream(f)
		}
	}
	e.Error = nil
	if len(e.Candidates) > 0 && e.Candidates[0] != nil { // only one was asked for
		first := e.Candidates[0]
		if first.Content != nil {
			t.parts = append(t.parts, first.Content.Parts...)
		}
		e.Candidates = []*candidate{{FinishReason: first.FinishReason}}
	} else {
		e.Candidates = nil
	}
	return json.Marshal(e)
}

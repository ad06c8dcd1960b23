package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"skandha.dev/pkg/provider"
)

// On the wire, a request is JSON on one line. The tools and messages of a model call, which
// may be long, follow on separate lines: first the tools as one JSON array, then one message
// per line. So a request can be decoded without parsing them.

// lines is the first line, with the number of lines that follow it.
type lines struct {
	Request
	// Lines is the number of lines that follow: one for the tools, then the messages.
	Lines int `json:"lines,omitempty"`
}

// Encode encodes a request. The messages, and tools if it is not nil, must be compact JSON
// without line breaks. If tools is not nil, it replaces r.Model.Tools.
func Encode(r Request, tools json.RawMessage) ([]byte, error) {
	head := lines{Request: r}
	if r.Model == nil {
		return json.Marshal(head)
	}
	model := *r.Model
	messages := model.Messages
	if tools == nil {
		var err error
		if tools, err = json.Marshal(model.Tools); err != nil {
			return nil, err
		}
	}
	model.Messages, model.Tools = nil, nil
	head.Model, head.Lines = &model, 1+len(messages)
	b, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	size := len(b) + len(tools) + 1
	for _, m := range messages {
		size += len(m) + 1
	}
	out := append(append(append(make([]byte, 0, size), b...), '\n'), tools...)
	for _, m := range messages {
		out = append(append(out, '\n'), m...)
	}
	return out, nil
}

// Decoder decodes requests. It caches the tools of the last model call, because they rarely
// change. The zero value is ready to use, also concurrently.
type Decoder struct {
	mu    sync.Mutex
	raw   []byte
	tools []provider.ToolSpec
}

// Decode decodes a request. Its messages point into b.
func (d *Decoder) Decode(b []byte) (Request, error) {
	first, rest, follows := bytes.Cut(b, []byte{'\n'})
	var head lines
	if err := json.Unmarshal(first, &head); err != nil {
		return Request{}, fmt.Errorf("executor request: %w", err)
	}
	r := head.Request
	if head.Lines == 0 {
		if follows && len(bytes.TrimSpace(rest)) > 0 {
			return Request{}, errors.New("executor request: unexpected lines after the first")
		}
		return r, nil
	}
	if r.Model == nil {
		return Request{}, errors.New("executor request: lines is set, but model is missing")
	}
	all := bytes.Split(rest, []byte{'\n'})
	if len(all) != head.Lines {
		return Request{}, fmt.Errorf("executor request: %d lines follow, want %d", len(all), head.Lines)
	}
	var err error
	if r.Model.Tools, err = d.decodeTools(all[0]); err != nil {
		return Request{}, err
	}
	r.Model.Messages = make([]json.RawMessage, len(all)-1)
	for i, m := range all[1:] {
		r.Model.Messages[i] = m
	}
	return r, nil
}

func (d *Decoder) decodeTools(raw []byte) ([]provider.ToolSpec, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.raw != nil && bytes.Equal(raw, d.raw) {
		return d.tools, nil
	}
	var tools []provider.ToolSpec
	if err := json.Unmarshal(raw, &tools); err != nil {
		return nil, fmt.Errorf("executor request: tools: %w", err)
	}
	d.raw, d.tools = bytes.Clone(raw), tools
	return tools, nil
}

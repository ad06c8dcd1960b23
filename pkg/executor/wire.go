package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"skandha.dev/pkg/provider"
)

// On the wire a request is JSON on one line. A model call's conversation and
// tools, which may be long and which nobody on the way looks into, follow it on
// lines of their own: first the tools as one JSON array, then one message a
// line. So a request is read without parsing what it carries.

// lines is what the first line says of those that follow it.
type lines struct {
	Request
	// Lines is how many lines follow: one of tools, then the messages; 0: none.
	Lines int `json:"lines,omitempty"`
}

// Encode writes a request. The messages, and tools if it is not nil, must be
// compact JSON: without line breaks. tools replaces r.Model.Tools, encoded.
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

// Decoder reads requests. It remembers the tools of the last model call, which
// hardly ever change. The zero value is ready; it may be used concurrently.
type Decoder struct {
	mu    sync.Mutex
	raw   []byte
	tools []provider.ToolSpec
}

// Decode reads a request. The messages point into b.
func (d *Decoder) Decode(b []byte) (Request, error) {
	first, rest, follows := bytes.Cut(b, []byte{'\n'})
	var head lines
	if err := json.Unmarshal(first, &head); err != nil {
		return Request{}, fmt.Errorf("executor request: %w", err)
	}
	r := head.Request
	if head.Lines == 0 {
		if follows && len(bytes.TrimSpace(rest)) > 0 {
			return Request{}, errors.New("executor request: lines follow that were not announced")
		}
		return r, nil
	}
	if r.Model == nil {
		return Request{}, errors.New("executor request: lines without a model call")
	}
	all := bytes.Split(rest, []byte{'\n'})
	if len(all) != head.Lines {
		return Request{}, fmt.Errorf("executor request: %d lines follow, %d were announced", len(all), head.Lines)
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

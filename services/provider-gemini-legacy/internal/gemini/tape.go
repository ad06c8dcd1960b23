package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"skandha.dev/pkg/provider"
)

// Bounds of what is read of an answer, in bytes.
const (
	maxWire  = 64 << 20 // all of it
	maxEvent = 8 << 20  // one event
)

// tape is the body of an answer: an array of events, which arrives bit by bit. While the SDK
// reads it, the tape keeps what the SDK drops. It gives the SDK only what the SDK can read: a
// part of another kind makes it panic, and a thought is text to it.
type tape struct {
	model *Model
	watch *watch

	body   io.ReadCloser // nil before play
	wire   wire
	events *json.Decoder
	begun  bool
	ready  bytes.Buffer // for the SDK
	kept   []record     // of events that take did not return yet
	err    error        // why there are no more events
}

// record is what the SDK drops of one event.
type record struct {
	parts   []json.RawMessage // as they arrived
	usage   *usage
	model   string
	ended   string // the finishReason
	blocked string // why the API refused the conversation
}

type usage struct {
	Prompt     int64 `json:"promptTokenCount"`
	ToolPrompt int64 `json:"toolUsePromptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
}

// event is an event of an answer, as the API writes it.
type event struct {
	Candidates []*struct {
		Content struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Usage    *usage `json:"usageMetadata"`
	Model    string `json:"modelVersion"`
	Feedback struct {
		Reason  string `json:"blockReason"`
		Message string `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	Error json.RawMessage `json:"error"`
}

// play begins to read a body.
func (t *tape) play(body io.ReadCloser) {
	t.body = body
	t.wire = wire{from: body, watch: t.watch, left: maxWire, event: maxEvent}
	t.events = json.NewDecoder(&t.wire)
}

// take returns the record of the oldest event that it did not return yet; a zero one if there
// is none.
func (t *tape) take() (r record) {
	if len(t.kept) > 0 {
		r, t.kept = t.kept[0], t.kept[1:]
	}
	return r
}

// Close implements [io.Closer].
func (t *tape) Close() error {
	if t.body == nil {
		return nil
	}
	return t.body.Close()
}

// Read implements [io.Reader] for the SDK.
func (t *tape) Read(p []byte) (int, error) {
	for t.ready.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.err = t.next()
	}
	return t.ready.Read(p)
}

// next reads an event, or the end of the array. After the end it returns [io.EOF].
func (t *tape) next() error {
	separator := byte(',')
	if !t.begun {
		if err := t.open(); err != nil {
			return err
		}
		t.begun, separator = true, '['
	}
	if !t.events.More() {
		if _, err := t.events.Token(); err != nil { // not the end, but an error
			return unexpected(err)
		}
		if separator == '[' {
			t.ready.WriteByte('[')
		}
		t.ready.WriteByte(']')
		return io.EOF
	}
	t.wire.event = maxEvent
	var raw json.RawMessage
	if err := t.events.Decode(&raw); err != nil {
		return unexpected(err)
	}
	shown, err := t.keep(raw)
	if err != nil {
		return err
	}
	t.ready.WriteByte(separator)
	t.ready.Write(shown)
	return nil
}

// unexpected keeps the SDK from taking a body that broke off for a complete one.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// open reads the beginning of the array.
func (t *tape) open() error {
	token, err := t.events.Token()
	switch {
	case err != nil:
		return unexpected(err)
	case token != json.Delim('['):
		return failure(provider.ErrGarbage, "the answer of %s is not an array of events", t.model.host)
	}
	return nil
}

// keep puts an event's record on the tape and returns what the SDK gets to see.
func (t *tape) keep(raw json.RawMessage) ([]byte, error) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	if len(e.Error) > 0 {
		return nil, t.model.interruption(readFault(raw))
	}
	r := record{usage: e.Usage, model: e.Model, blocked: e.Feedback.Reason}
	if r.blocked != "" && e.Feedback.Message != "" {
		r.blocked += ": " + e.Feedback.Message
	}
	var shown shownEvent
	shown.Feedback.Reason = e.Feedback.Reason
	if len(e.Candidates) > 0 && e.Candidates[0] != nil { // only one was asked for
		c := e.Candidates[0]
		r.parts, r.ended = slices.Clone(c.Content.Parts), c.FinishReason
		parts, err := show(r.parts)
		if err != nil {
			return nil, err
		}
		shown.Candidates = []shownCandidate{{Content: shownContent{"model", parts}, FinishReason: c.FinishReason}}
	}
	t.kept = append(t.kept, r)
	return json.Marshal(shown)
}

// What the SDK gets of an event.
type (
	shownEvent struct {
		Candidates []shownCandidate `json:"candidates,omitempty"`
		Feedback   struct {
			Reason string `json:"blockReason,omitempty"`
		} `json:"promptFeedback,omitzero"`
	}
	shownCandidate struct {
		Content      shownContent `json:"content"`
		FinishReason string       `json:"finishReason,omitempty"`
	}
	shownContent struct {
		Role  string      `json:"role"`
		Parts []shownPart `json:"parts"`
	}
	shownPart struct {
		Text string         `json:"text,omitempty"`
		Call *shownFunction `json:"functionCall,omitempty"`
	}
	shownFunction struct {
		Name string `json:"name"`
	}
)

// show returns the texts and the calls of parts.
func show(parts []json.RawMessage) ([]shownPart, error) {
	shown := []shownPart{}
	for _, raw := range parts {
		var p part
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		switch {
		case p.Call != nil:
			shown = append(shown, shownPart{Call: &shownFunction{p.Call.Name}})
		case p.Text != "" && !p.Thought:
			shown = append(shown, shownPart{Text: p.Text})
		}
	}
	return shown, nil
}

// wire is the connection: it notes when bytes arrive, and bounds them.
type wire struct {
	from  io.Reader
	watch *watch
	left  int // of the whole answer
	event int // of the event that is being read
}

// Read implements [io.Reader].
func (w *wire) Read(p []byte) (int, error) {
	room := min(w.left, w.event)
	if room <= 0 {
		return 0, errFull
	}
	n, err := w.from.Read(p[:min(len(p), room)])
	if n > 0 {
		w.watch.alive()
	}
	w.left, w.event = w.left-n, w.event-n
	return n, err
}

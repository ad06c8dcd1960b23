package geminitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// arrayWriter is the response to a request for a JSON array.
type arrayWriter struct{ http.ResponseWriter }

// Unwrap is for [http.ResponseController].
func (w arrayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Stream writes an answer chunk by chunk, as the API does.
type Stream struct {
	w     http.ResponseWriter
	array bool
	begun bool
}

// NewStream prepares a stream; nothing is sent before its first piece.
func NewStream(w http.ResponseWriter) *Stream {
	_, array := w.(arrayWriter)
	return &Stream{w: w, array: array}
}

// Event writes one event with the data as it is.
func (s *Stream) Event(data string) {
	switch {
	case s.array && s.begun:
		s.write(",\r\n" + data)
	case s.array:
		s.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		s.write("[" + data)
	default:
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.write("data: " + data + "\r\n\r\n")
	}
	s.begun = true
}

func (s *Stream) write(text string) {
	_, _ = fmt.Fprint(s.w, text)
	_ = http.NewResponseController(s.w).Flush()
}

// Part writes a chunk with a part, a JSON object, as it is.
func (s *Stream) Part(part string) {
	s.Event(fmt.Sprintf(`{"candidates": [{"content": {"parts": [%s],"role": "model"},"index": 0}],`+
		`"modelVersion": %q,"responseId": "r1"}`,
		part, Model+"-001"))
}

// Text writes a piece of the text.
func (s *Stream) Text(piece string) { s.Part(`{"text": ` + quote(piece) + `}`) }

// callPart is the part of a call. The API gives ids; every other call here has none, as
// those of older models.
func callPart(c contract.ToolCall) string {
	id := ""
	if !strings.HasSuffix(c.ID, "1") {
		id = `"id": ` + quote("call-"+c.ID) + `,`
	}
	return fmt.Sprintf(`{"functionCall": {%s"name": %s,"args": %s}}`, id, quote(subject.Encode(c.Tool)), c.Args)
}

// Finish ends the answer. A usage that is unknown is not sent.
func (s *Stream) Finish(reason string, u contract.Usage) {
	usage := ""
	if u.Uncounted == 0 {
		usage = fmt.Sprintf(`"usageMetadata": {"promptTokenCount": %d,"candidatesTokenCount": %d,"totalTokenCount": %d,`+
			`"cachedContentTokenCount": %d,"thoughtsTokenCount": %d},`, u.InputTokens, u.OutputTokens-u.ReasoningTokens,
			u.InputTokens+u.OutputTokens, u.CachedTokens, u.ReasoningTokens)
	}
	s.Event(fmt.Sprintf(`{"candidates": [{"content": {"parts": [{"text": ""}],"role": "model"},"finishReason": %q,"index": 0}],`+
		`%s"modelVersion": %q}`, reason, usage, Model+"-001"))
	if s.array {
		s.write("\r\n]")
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // text always encodes
	}
	return string(b)
}

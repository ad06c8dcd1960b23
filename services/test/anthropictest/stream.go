package anthropictest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// Stream writes an answer event by event, as the API does: with pings, and with events and
// fields that are new.
type Stream struct {
	w     http.ResponseWriter
	s     *Server
	req   Request
	begun bool
	block string // the type of the open block
	index int    // of the open block, or the next one
}

// Stream prepares a stream that answers a request; nothing is sent before its first piece.
func (s *Server) Stream(w http.ResponseWriter, req Request) *Stream {
	return &Stream{w: w, s: s, req: req}
}

// Reply returns a handler that answers the latest request with what write writes.
func (s *Server) Reply(write func(out *Stream)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		seen := s.Seen()
		write(s.Stream(w, seen[len(seen)-1]))
	}
}

// Event writes one event with the data as it is.
func (s *Stream) Event(name, data string) {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		s.start()
	}
	_, _ = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, data)
	_ = http.NewResponseController(s.w).Flush()
}

func (s *Stream) start() {
	s.Event("message_start", fmt.Sprintf(`{"type": "message_start", "message": {"id": "msg_1", "type": "message", `+
		`"role": "assistant", "model": %q, "content": [], "stop_reason": null, "stop_sequence": null, "usage": `+
		`{"input_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1, `+
		`"service_tier": "standard"}, "new_field": {"a": [1]}}}`, s.req.Model+"-20260101"))
	s.Event("ping", `{"type": "ping"}`)
	s.Event("new_event", `{"type": "new_event", "index": 0, "content": "?"}`)
	_, _ = fmt.Fprint(s.w, ": comment\n\n")
}

// Open begins a block; block is a JSON object.
func (s *Stream) Open(kind, block string) {
	s.Close()
	s.Event("content_block_start", fmt.Sprintf(`{"type": "content_block_start", "index": %d, "content_block": %s}`,
		s.index, block))
	s.block = kind
}

// Delta continues the open block; delta is a JSON object.
func (s *Stream) Delta(delta string) {
	s.Event("content_block_delta", fmt.Sprintf(`{"type": "content_block_delta", "index": %d, "delta": %s}`, s.index,
		delta))
}

// Close ends the open block, if there is one.
func (s *Stream) Close() {
	if s.block == "" {
		return
	}
	s.Event("content_block_stop", fmt.Sprintf(`{"type": "content_block_stop", "index": %d}`, s.index))
	s.block = ""
	s.index++
}

// Text writes a piece of text, in the open block if that is one.
func (s *Stream) Text(piece string) {
	if s.block != "text" {
		s.Open("text", `{"type": "text", "text": ""}`)
	}
	s.Delta(`{"type": "text_delta", "text": ` + quote(piece) + `}`)
}

// Thinking writes a signed thinking block. Its text is empty unless the request asks for it.
func (s *Stream) Thinking(text string) {
	if t := s.req.Thinking; t == nil || t.Type == "adaptive" && t.Display != "summarized" {
		text = ""
	}
	s.RawThinking(strings.Trim(quote(text), `"`))
}

// RawThinking writes a signed thinking block with a text that is escaped already.
func (s *Stream) RawThinking(escaped string) {
	s.Open("thinking", `{"type": "thinking", "thinking": "", "signature": ""}`)
	head, tail, found := strings.Cut(escaped, " ")
	if found {
		tail = " " + tail
	}
	for _, piece := range []string{head, tail} {
		s.Delta(`{"type": "thinking_delta", "thinking": "` + piece + `"}`)
	}
	s.Delta(`{"type": "signature_delta", "signature": "` + s.s.sign(`"`+escaped+`"`, s.req) + `"}`)
	s.Close()
}

// Redacted writes a block of thinking that cannot be read.
func (s *Stream) Redacted(data string) {
	s.s.remember(data, thought{"", s.req.before(len(s.req.Messages)), s.req.Model})
	s.Open("redacted_thinking", `{"type": "redacted_thinking", "data": "`+data+`"}`)
	s.Close()
}

// Call writes a call. Its arguments may be anything that a model might write.
func (s *Stream) Call(c contract.ToolCall) {
	args := string(c.Args)
	var broken string
	if strings.HasPrefix(args, `"`) && json.Unmarshal(c.Args, &broken) == nil {
		args = broken
	}
	s.RawCall("toolu_"+strings.ReplaceAll(c.ID, ":", "_"), subject.Encode(c.Tool), args)
}

// RawCall writes a call with arguments as they are, in two pieces.
func (s *Stream) RawCall(id, name, args string) {
	s.Open("tool_use", fmt.Sprintf(`{"type": "tool_use", "id": %s, "name": %s, "input": {}, "caller": {"type": "direct"}}`,
		quote(id), quote(name)))
	s.Delta(`{"type": "input_json_delta", "partial_json": ""}`)
	if args != "{}" { // of these, the API writes nothing
		runes := []rune(args)
		half := len(runes) / 2
		for _, piece := range []string{string(runes[:half]), string(runes[half:])} {
			s.Delta(`{"type": "input_json_delta", "partial_json": ` + quote(piece) + `}`)
		}
	}
	s.Close()
}

// Finish ends the answer. Three quarters of the input come from the cache, or go there.
func (s *Stream) Finish(reason string, u contract.Usage) {
	s.Close()
	if u.Uncounted > 0 {
		s.Event("message_delta", fmt.Sprintf(`{"type": "message_delta", "delta": {"stop_reason": %q, "stop_sequence": null}}`, reason))
		s.Event("message_stop", `{"type": "message_stop"}`)
		return
	}
	s.Event("message_delta", fmt.Sprintf(`{"type": "message_delta", "delta": {"stop_reason": %q, "stop_sequence": null}, `+
		`"usage": {"input_tokens": %d, "cache_creation_input_tokens": %d, "cache_read_input_tokens": %d, `+
		`"output_tokens": %d, "output_tokens_details": {"thinking_tokens": %d}}}`, reason,
		u.InputTokens-u.CachedTokens-u.CacheWriteTokens, u.CacheWriteTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens))
	s.Event("message_stop", `{"type": "message_stop"}`)
}

package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/scripted"
)

// Stream writes an answer chunk by chunk, exactly as the API does: a first chunk
// with the role, the pieces, a chunk with the finish reason, one with the usage,
// and [DONE].
type Stream struct {
	w     http.ResponseWriter
	begun bool
}

// NewStream prepares a stream; nothing is sent before its first piece.
func NewStream(w http.ResponseWriter) *Stream { return &Stream{w: w} }

type chunk struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	ServiceTier       string   `json:"service_tier"`
	SystemFingerprint string   `json:"system_fingerprint"`
	Choices           []choice `json:"choices"`
	Usage             *usage   `json:"usage"`
	Obfuscation       string   `json:"obfuscation"`
}

type choice struct {
	Index        int             `json:"index"`
	Delta        json.RawMessage `json:"delta"`
	Logprobs     *struct{}       `json:"logprobs"`
	FinishReason *string         `json:"finish_reason"`
}

type usage struct {
	PromptTokens            int64            `json:"prompt_tokens"`
	CompletionTokens        int64            `json:"completion_tokens"`
	TotalTokens             int64            `json:"total_tokens"`
	PromptTokensDetails     map[string]int64 `json:"prompt_tokens_details"`
	CompletionTokensDetails map[string]int64 `json:"completion_tokens_details"`
}

// Event writes one event with the data as it is.
func (s *Stream) Event(data string) {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", data)
	_ = http.NewResponseController(s.w).Flush()
}

// Delta writes a chunk with the delta, a JSON object, as it is.
func (s *Stream) Delta(delta string) {
	if !s.begun && !strings.Contains(delta, `"role"`) {
		s.Delta(`{"role":"assistant","content":"","refusal":null}`)
	}
	s.chunk([]choice{{Delta: json.RawMessage(delta)}}, nil)
}

// Text writes a piece of the text.
func (s *Stream) Text(piece string) { s.Delta(`{"content":` + quote(piece) + `}`) }

// Call writes a call: a chunk with its id and name, and one for every few bytes
// of its arguments, cut wherever it hurts.
func (s *Stream) Call(index int, c contract.ToolCall) {
	head := fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`,
		index, quote("call_"+c.ID), quote(subject.Encode(c.Tool)))
	if !s.begun {
		head = `{"role":"assistant","content":null,"refusal":null,` + head[1:]
	}
	s.Delta(head)
	for _, piece := range scripted.Pieces(written(c.Args)) {
		s.Delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, index, quote(piece)))
	}
}

// written is how the model wrote arguments: those that are no JSON are kept as a JSON string.
func written(args json.RawMessage) string {
	var bare string
	if len(args) > 0 && args[0] == '"' && json.Unmarshal(args, &bare) == nil {
		return bare
	}
	return string(args)
}

// Finish ends the answer. A usage that is unknown is not sent.
func (s *Stream) Finish(reason string, u contract.Usage) {
	if !s.begun {
		s.Delta(`{"role":"assistant","content":"","refusal":null}`)
	}
	s.chunk([]choice{{Delta: json.RawMessage("{}"), FinishReason: &reason}}, nil)
	if u.Uncounted == 0 {
		s.chunk([]choice{}, &usage{
			PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens,
			PromptTokensDetails:     map[string]int64{"cached_tokens": u.CachedTokens, "audio_tokens": 0},
			CompletionTokensDetails: map[string]int64{"reasoning_tokens": u.ReasoningTokens},
		})
	}
	s.Event("[DONE]")
}

func (s *Stream) chunk(choices []choice, u *usage) {
	b, err := json.Marshal(chunk{
		ID: "chatcmpl-0001", Object: "chat.completion.chunk", Created: 1700000000, Model: Model + "-2026-01-01",
		ServiceTier: "default", SystemFingerprint: "fp_0001", Choices: choices, Usage: u, Obfuscation: "x7Qp",
	})
	if err != nil {
		panic(err) // a delta that a test wrote is no JSON
	}
	s.Event(string(b))
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // text always encodes
	}
	return string(b)
}

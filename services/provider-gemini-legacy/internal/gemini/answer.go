package gemini

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/generative-ai-go/genai"
	"google.golang.org/api/iterator"

	"skandha.dev/pkg/provider"
)

// The limits of an answer, in bytes unless stated otherwise. The provider service refuses
// longer ones; here they end the request.
const (
	maxText  = 200 << 10
	maxCalls = 64 // calls
	maxArgs  = 256 << 10
	maxState = 128 << 10
	maxName  = 256
)

// part is what this package reads of a part.
type part struct {
	Text      string        `json:"text"`
	Thought   bool          `json:"thought"`
	Signature string        `json:"thoughtSignature"`
	Call      *functionCall `json:"functionCall"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// answer joins the events of one answer: the text from the SDK, and from the tape what the SDK
// drops.
type answer struct {
	model *Model
	tools map[string]string // the offered ones, by their name on the wire

	text    strings.Builder
	calls   []provider.ToolCall
	args    int // bytes
	state   state
	usage   *usage // nil: not reported
	version string
	ended   string
	blocked string
}

// next reads an event. It reports whether there may be more.
func (a *answer) next(stream *genai.GenerateContentResponseIterator, t *tape) (bool, error) {
	chunk, err := stream.Next()
	var blocked *genai.BlockedError
	switch {
	case errors.Is(err, iterator.Done):
		return false, nil
	case errors.As(err, &blocked):
		return false, a.add(blocked.Candidate, t.take())
	case err != nil:
		return false, err
	case len(chunk.Candidates) == 0:
		return true, a.add(nil, t.take())
	}
	return true, a.add(chunk.Candidates[0], t.take())
}

// add adds an event: its candidate, or nil, and its record.
func (a *answer) add(c *genai.Candidate, r record) error {
	a.usage, a.version = cmp.Or(r.usage, a.usage), cmp.Or(r.model, a.version)
	a.ended, a.blocked = cmp.Or(r.ended, a.ended), cmp.Or(r.blocked, a.blocked)
	if c != nil && c.Content != nil {
		for _, p := range c.Content.Parts {
			if text, is := p.(genai.Text); is {
				a.text.WriteString(string(text))
			}
		}
	}
	if a.text.Len() > maxText {
		return failure(provider.ErrTooLong, "the answer's text is longer than %d bytes", maxText)
	}
	for _, raw := range r.parts {
		if err := a.part(raw); err != nil {
			return err
		}
	}
	return nil
}

// part adds a part as it arrived.
func (a *answer) part(raw json.RawMessage) error {
	var p part
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	a.state.add(raw, p)
	if p.Call == nil {
		return nil
	}
	a.args += len(p.Call.Args)
	switch {
	case p.Call.Name == "" || len(p.Call.Name) > maxName:
		return failure(provider.ErrGarbage, "call %d names no function, or one with more than %d bytes", len(a.calls),
			maxName)
	case len(a.calls) == maxCalls:
		return failure(provider.ErrTooLong, "the answer has more than %d calls", maxCalls)
	case a.args > maxArgs:
		return failure(provider.ErrTooLong, "the arguments of the answer's calls are longer than %d bytes", maxArgs)
	}
	tool, offered := a.tools[p.Call.Name]
	if !offered {
		tool = toolName(p.Call.Name)
	}
	a.calls = append(a.calls, provider.ToolCall{ID: callID(p.Call.ID, a.calls), Tool: tool, Args: p.Call.arguments()})
	return nil
}

// arguments returns the arguments as the model wrote them.
func (c *functionCall) arguments() json.RawMessage {
	if len(c.Args) == 0 {
		return json.RawMessage(`{}`)
	}
	return c.Args
}

// callID returns the API's id of a call, or an id for a call that has none, or one that an
// earlier call of the answer has.
func callID(id string, before []provider.ToolCall) string {
	used := func(id string) bool {
		for _, c := range before {
			if c.ID == id {
				return true
			}
		}
		return false
	}
	if id != "" && len(id) <= maxName && !used(id) {
		return id
	}
	n := len(before)
	for used(fmt.Sprintf("call_%d", n)) {
		n++
	}
	return fmt.Sprintf("call_%d", n)
}

// finish returns the answer, or why there is none.
func (a *answer) finish() (provider.Response, error) {
	if err := a.fault(); err != nil {
		return provider.Response{}, err
	}
	return provider.Response{
		TextContent: a.text.String(), ToolCalls: a.calls, StopReason: a.stopReason(), Model: a.version,
		Usage: a.usage.tokens(), ProviderState: a.state.encode(),
	}, nil
}

// tokens returns the contract's usage. The provider service knows the prices.
func (u *usage) tokens() provider.Usage {
	if u == nil {
		return provider.Usage{Uncounted: 1, Unpriced: 1}
	}
	return provider.Usage{
		InputTokens: u.Prompt + u.ToolPrompt, OutputTokens: u.Candidates + u.Thoughts,
		CachedTokens: u.Cached, ReasoningTokens: u.Thoughts, Unpriced: 1,
	}
}

// fault returns why there is no answer; nil if there is one.
func (a *answer) fault() error {
	empty := strings.TrimSpace(a.text.String()) == "" && len(a.calls) == 0
	switch a.ended {
	case "", "FINISH_REASON_UNSPECIFIED":
		if a.blocked != "" {
			return failure(provider.ErrBadRequest, "the API's filter refused the conversation: %s", a.model.clean(a.blocked))
		}
		return failure(provider.ErrGarbage, "the answer ended without a finishReason")
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS":
		return failure(provider.ErrGarbage, "the model wrote a call that the API could not read: %s", a.ended)
	}
	if !empty {
		return nil
	}
	switch a.ended {
	case "STOP":
		return failure(provider.ErrGarbage, "the answer has neither text nor calls")
	case "MAX_TOKENS":
		return failure(provider.ErrTooLong,
			"the token limit was reached before the answer began; raise max_tokens, or shorten the conversation")
	}
	return failure(provider.ErrBadRequest, "the API's filter withheld the answer: %s", a.model.clean(a.ended))
}

func (a *answer) stopReason() provider.StopReason {
	switch {
	case a.ended == "MAX_TOKENS":
		return provider.StopLength
	case a.ended == "OTHER":
		return provider.StopOther
	case a.ended != "STOP":
		return provider.StopFilter
	case len(a.calls) > 0:
		return provider.StopToolCalls
	}
	return provider.StopEnd
}

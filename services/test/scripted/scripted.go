// Package scripted is a language model for tests: the message is an order to it.
// Nothing is checked: a call goes out whether its tool is offered or not, with exactly
// these arguments.
//
//	call TOOL ARGS                   one call; ARGS is JSON, or garbage that a model might write
//	twins TOOL ARGS                  two calls with the same id
//	call2 TOOL ARGS ; TOOL ARGS      two calls at once
//	chain TOOL ARGS ; TOOL ARGS      two calls, ids "a" and "b", b depends on a (and may use ${a.field})
//	then TOOL ARGS ; TOOL ARGS       the second call is made after the first one's result
//	calls N TOOL ARGS                the same call N times at once
//	comment TEXT :: TOOL ARGS        text and a call in one answer
//	plan ARGS                        the tool plan:execute with ARGS
//	loop TOOL ARGS                   the same call after every result, for ever
//	unknown tool                     a call of an unknown tool
//	hang                             no answer until the request is cancelled
//	never ends                       streams 1 KiB of text every millisecond, until it is too long
//	garbage                          neither text nor calls
//	slow N ms                        the text "slow" after N milliseconds
//	slow N ms call TOOL ARGS         one call after N milliseconds
//	stream N words [every M ms]      "word1 word2 …", each in a separate delta
//	text N bytes                     N times "x"
//	fail CODE [retry N ms]           the provider's error of that code
//	spend N tokens [call TOOL ARGS]  N input and N output tokens
//	spend N tokens, C cached, R reasoning
//	                                 C of the input and R of the output tokens
//	count nothing                    a usage that says nothing
//	describe the files               media type, size and checksum of each file of the message,
//	                                 and the text after the order
//	answer in json                   the schema that the answer is to match
//	cost N [call TOOL ARGS]          N millionths of a dollar
//	anything else                    is echoed
//
// After results, the answer lists them, one paragraph each:
// "TOOL: RESULT", or "TOOL failed: CODE: MESSAGE", and after it each file as [Saw] describes it.
package scripted

import (
	"context"
	"strings"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/tail"
)

// Model is a model that obeys. It keeps no state between two questions.
type Model struct {
	script    func(t *tail.Tail) Reply
	unbounded bool
}

var _ adapter.Adapter = (*Model)(nil)

// Reply is what a model does with a message.
type Reply struct {
	Text  string
	Of    func(contract.Request) string // instead of Text
	Calls []contract.ToolCall
	Usage contract.Usage

	Delay   time.Duration // before it, or before each of Words
	Words   int           // streams that many
	Error   *contract.Error
	Hang    bool // no answer until the request is cancelled
	Endless bool // text until it is too long
}

// New returns a model that obeys the orders of this package.
func New() *Model { return &Model{script: obey} }

// Unbounded returns a model like New whose answers have no limits, and need not make sense.
// It is for servers, whose clients must bear that.
func Unbounded() *Model { return &Model{script: obey, unbounded: true} }

// By returns a model that replies to the last user message, and phrases the results of
// its calls.
func By(reply func(message string) Reply, phrase func(tail.Result) string) *Model {
	return &Model{script: func(t *tail.Tail) Reply {
		if t.Rounds > 0 {
			return Reply{Text: paragraphs(t, phrase)}
		}
		return reply(t.Message)
	}}
}

// Info implements adapter.Adapter. The name is that of the offline provider, which
// agents of tests are configured with.
func (m *Model) Info() contract.Info {
	return contract.Info{Name: "offline", Model: "rules", Note: "rules for tests"}
}

// Generate implements adapter.Adapter.
func (m *Model) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	req, err := composed(req)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "%v", err)
	}
	t, err := tail.Read(req.Messages)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "%v", err)
	}
	reply := withIDs(m.script(&t), t.Rounds)
	if reply.Of != nil {
		reply.Text = reply.Of(req)
	}
	resp, err := m.perform(ctx, reply, delta)
	if err != nil {
		if ctx.Err() != nil {
			return contract.Response{}, err // the context's own
		}
		return contract.Response{}, adapter.Failure(err)
	}
	if err := adapter.DefaultLimits().Check(resp); err != nil && !m.unbounded {
		return contract.Response{}, err
	}
	resp.Model, resp.StopReason = "rules", contract.StopEnd
	if resp.IsFinal = len(resp.ToolCalls) == 0; !resp.IsFinal {
		resp.StopReason = contract.StopToolCalls
	}
	return resp, nil
}

func (m *Model) perform(
	ctx context.Context, r Reply, delta func(text, reasoning string),
) (contract.Response, error) {
	resp := contract.Response{TextContent: r.Text, ToolCalls: r.Calls, Usage: r.Usage}
	switch {
	case r.Hang:
		<-ctx.Done()
		return resp, ctx.Err()
	case r.Endless:
		return resp, m.endless(ctx, delta)
	case r.Words > 0:
		words := strings.SplitAfter(numbered(r.Words), " ")
		for _, w := range words {
			if err := pause(ctx, r.Delay); err != nil {
				return resp, err
			}
			delta(w, "")
		}
		resp.TextContent = strings.Join(words, "")
		return resp, nil
	}
	if err := pause(ctx, r.Delay); err != nil {
		return resp, err
	}
	if r.Error != nil {
		return resp, r.Error
	}
	if r.Text != "" {
		delta(r.Text, "")
	}
	return resp, nil
}

// endless streams 1 KiB every millisecond. It is cut off like the answer of any other
// model that does not end.
func (m *Model) endless(ctx context.Context, delta func(text, reasoning string)) error {
	limits := adapter.DefaultLimits()
	piece := strings.Repeat("and on ", 147)[:1024]
	for sent := 0; ; sent += len(piece) {
		if sent+len(piece) > limits.TextBytes && !m.unbounded {
			return limits.TextTooLong()
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
		delta(piece, "")
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

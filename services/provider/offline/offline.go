package offline

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// Name is the adapter's name.
const Name = "offline"

// Adapter answers by rules. It keeps no state between two questions.
type Adapter struct {
	rules *ruleSet
	info  contract.Info
}

var _ adapter.Adapter = (*Adapter)(nil)

var limits = adapter.DefaultLimits()

// New reads rules; nil means [DefaultRules]. The error wraps [ErrRules] and
// lists everything that is wrong with them.
func New(rules []byte) (*Adapter, error) {
	if rules == nil {
		rules = DefaultRules
	}
	s, err := parse(rules)
	if err != nil {
		return nil, err
	}
	return &Adapter{rules: s, info: contract.Info{Name: Name, Model: "rules", Note: s.note}}, nil
}

// Load reads rules from a file.
func Load(path string) (*Adapter, error) {
	rules, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the offline rules: %w", err)
	}
	a, err := New(rules)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info { return a.info }

// Generate implements adapter.Adapter. Text is passed to delta in one piece,
// unless a test rule streams it.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	resp, err := a.answer(ctx, req, delta)
	if err != nil {
		if ctx.Err() != nil {
			return contract.Response{}, err // the context's own
		}
		return contract.Response{}, adapter.Failure(err)
	}
	if err := limits.Check(resp); err != nil {
		return contract.Response{}, err
	}
	resp.Model = a.info.Model
	resp.IsFinal = len(resp.ToolCalls) == 0
	resp.StopReason = contract.StopEnd
	if !resp.IsFinal {
		resp.StopReason = contract.StopToolCalls
	}
	return resp, nil
}

func (a *Adapter) answer(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	tail, err := readTail(req.Messages)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "%v", err)
	}
	m := a.rules.match(tail.message, req.Tools)
	text, calls, err := m.next(a.rules, &tail)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrInternal, "%v", err)
	}
	resp := contract.Response{TextContent: text, ToolCalls: calls}
	if r := m.only(); r != nil && r.misbehaves() {
		if tail.rounds > 0 && !r.loop {
			delta(text, "") // it misbehaved in its first round only
			return resp, nil
		}
		return r.behave(ctx, m.parts[0].vars, resp, delta)
	}
	if text != "" {
		delta(text, "")
	}
	return resp, nil
}

// behave adds the behaviour that a test asks for to the answer of the rule.
func (r *rule) behave(
	ctx context.Context, vars map[string]any, resp contract.Response, delta func(text, reasoning string),
) (contract.Response, error) {
	var n numbers
	delay := n.of(r.delay, vars)
	words := n.of(r.words, vars)
	resp.Usage = contract.Usage{
		InputTokens: n.of(r.input, vars), OutputTokens: n.of(r.output, vars), CostMicroUSD: n.of(r.cost, vars),
	}
	if n.err != nil {
		return resp, fmt.Errorf("rule %q: %w", r.name, n.err)
	}
	switch {
	case r.hang:
		<-ctx.Done()
		return resp, ctx.Err()
	case r.endless:
		return resp, endless(ctx, delta)
	case r.code != nil:
		return resp, r.failure(ctx, time.Duration(delay)*time.Millisecond, vars)
	case r.words != nil:
		return stream(ctx, words, time.Duration(delay)*time.Millisecond, resp, delta)
	}
	if err := pause(ctx, time.Duration(delay)*time.Millisecond); err != nil {
		return resp, err
	}
	if resp.TextContent != "" {
		delta(resp.TextContent, "")
	}
	return resp, nil
}

func (r *rule) failure(ctx context.Context, delay time.Duration, vars map[string]any) error {
	if err := pause(ctx, delay); err != nil {
		return err
	}
	code, err := r.code.render(vars)
	if err != nil {
		return err
	}
	if !codes[contract.ErrorCode(code)] {
		return fmt.Errorf("rule %q: %q is not an error code", r.name, code)
	}
	message, err := r.message.render(vars)
	if err != nil {
		return err
	}
	var n numbers
	e := adapter.Errorf(contract.ErrorCode(code), "%s", message)
	e.RetryInMS = n.of(r.retryIn, vars)
	if n.err != nil {
		return n.err
	}
	return e
}

func stream(
	ctx context.Context, words int64, every time.Duration, resp contract.Response, delta func(text, reasoning string),
) (contract.Response, error) {
	var b strings.Builder
	for i := range words {
		if err := pause(ctx, every); err != nil {
			return resp, err
		}
		word := "word" + strconv.FormatInt(i+1, 10)
		if i < words-1 {
			word += " "
		}
		b.WriteString(word)
		delta(word, "")
	}
	resp.TextContent = b.String()
	return resp, nil
}

// endless streams 1 KiB every millisecond. It is cut off like the answer of any other
// model that does not end.
func endless(ctx context.Context, delta func(text, reasoning string)) error {
	piece := strings.Repeat("and on ", 147)[:1024]
	for sent := 0; ; sent += len(piece) {
		if sent+len(piece) > limits.TextBytes {
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

// numbers renders templates to numbers and keeps the first error.
type numbers struct{ err error }

func (n *numbers) of(t *tmpl, vars map[string]any) int64 {
	text, err := t.render(vars)
	if err == nil && text != "" {
		var v int64
		if v, err = strconv.ParseInt(text, 10, 64); err == nil {
			return v
		}
	}
	if err != nil && n.err == nil {
		n.err = err
	}
	return 0
}

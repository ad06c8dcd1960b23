package offline

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/tail"
)

// Name is the adapter's name.
const Name = "offline"

// Adapter answers by rules. It keeps no state between two questions.
type Adapter struct {
	rules *ruleSet
	info  contract.Info
}

var _ adapter.Adapter = (*Adapter)(nil)

// New reads rules; nil means the built-in ones. The error wraps [ErrRules] and
// lists everything that is wrong with them.
func New(rules []byte) (*Adapter, error) {
	if rules == nil {
		rules = defaultRules
	}
	s, err := parse(rules)
	if err != nil {
		return nil, err
	}
	return &Adapter{rules: s, info: contract.Info{Name: Name, Model: "rules", Note: s.Note}}, nil
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

// Generate implements adapter.Adapter. Text is passed to delta in one piece.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	t, err := tail.Read(req.Messages)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "%v", err)
	}
	text, calls, err := a.rules.next(&t, req.Tools)
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrInternal, "%v", err)
	}
	resp := contract.Response{
		TextContent: text, ToolCalls: calls, Model: a.info.Model, IsFinal: len(calls) == 0, StopReason: contract.StopEnd,
	}
	if !resp.IsFinal {
		resp.StopReason = contract.StopToolCalls
	}
	if err := adapter.DefaultLimits().Check(resp); err != nil {
		return contract.Response{}, err
	}
	if text != "" {
		delta(text, "")
	}
	return resp, nil
}

// next returns the model's next message: calls, or the text after them.
func (s *ruleSet) next(t *tail.Tail, offered []contract.ToolSpec) (string, []contract.ToolCall, error) {
	tools := make([]string, len(offered))
	for i := range offered {
		tools[i] = offered[i].Name
	}
	vars := map[string]any{"message": t.Message, "tools": tools}
	parts, missing := s.match(t.Message, vars, tools)
	switch {
	case len(parts) == 0:
		text, err := s.Fallback.render(vars)
		return text, nil, err
	case missing != "":
		vars["tool"] = missing
		text, err := s.Missing.render(vars)
		return text, nil, err
	case len(parts[0].Calls) == 0:
		text, err := parts[0].Text.render(parts[0].vars)
		return text, nil, err
	case t.Rounds == 0:
		calls, err := buildAll(parts, tools)
		return "", calls, err
	}
	results := t.Results
	if first := parts[0]; len(parts) == 1 && len(first.Else) > 0 {
		if t.Rounds == 1 && !t.Succeeded() && offers(tools, first.Else) {
			calls, err := first.build(first.Else, tools, "c1_")
			return "", calls, err
		}
		results = slices.DeleteFunc(slices.Clone(results), func(r tail.Result) bool { return r.Round < t.Rounds })
	}
	text, err := s.tell(results)
	return text, nil, err
}

func offers(tools []string, calls []call) bool {
	return !slices.ContainsFunc(calls, func(c call) bool { _, ok := c.tool(nil, tools); return !ok })
}

// tell phrases the results of the tools.
func (s *ruleSet) tell(results []tail.Result) (string, error) {
	lines := make([]string, len(results))
	for i := range results {
		line, err := s.phrase(&results[i])
		if err != nil {
			return "", fmt.Errorf("results.%s: %w", results[i].Tool, err)
		}
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n\n"), nil
}

func (s *ruleSet) phrase(r *tail.Result) (string, error) {
	args, _ := tail.Decode(r.Args)
	vars := map[string]any{"tool": r.Tool, "ok": r.OK, "text": r.Text, "note": r.Note, "args": args, "data": r.Data()}
	own, general := s.Results[r.Tool].Success, s.Results["default"].Success
	if !r.OK {
		own, general = s.Results[r.Tool].Failure, s.Results["default"].Failure
		f := r.Fault()
		vars["error"] = map[string]any{"code": f.Code, "message": f.Message, "details": f.Details}
	}
	if own.t != nil {
		// A result in another shape than its tool's phrase expects gets the default phrase.
		if text, err := own.render(vars); err == nil {
			return text, nil
		}
	}
	return general.render(vars)
}

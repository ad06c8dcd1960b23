package decide

import (
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// dataOf returns a function that looks up the data of finished steps by the model's
// ids: first in the same plan, then in the same answer.
func (t *Turn) dataOf(parent string) func(id string) (json.RawMessage, bool) {
	in := func(scope, id string) *Step {
		for i := range t.Steps {
			if s := &t.Steps[i]; s.Parent == scope && s.CallID == id {
				return s
			}
		}
		return nil
	}
	return func(id string) (json.RawMessage, bool) {
		s := in(parent, id)
		if s == nil {
			s = in("", id)
		}
		if s == nil || s.Status != Done || !s.Result.Success {
			return nil, false
		}
		return s.Result.Data, true
	}
}

// stepResult is the part of a plan:execute call's result about one step.
type stepResult struct {
	Tool    string          `json:"tool"`
	Success bool            `json:"success"`
	Data    json.RawMessage `json:"data,omitempty"`
	Cut     bool            `json:"cut,omitempty"` // Data is a string: the beginning of the data, as text
	Error   *tool.Error     `json:"error,omitempty"`
	Note    string          `json:"note,omitempty"`
}

// maxPlanData bounds the data of all steps of one plan:execute call together, in bytes.
const maxPlanData = 256 << 10

// fit truncates the largest data so that all of it stays within the bound.
func fit(steps map[string]stepResult) {
	total := 0
	for _, s := range steps {
		total += len(s.Data)
	}
	if total <= maxPlanData {
		return
	}
	for id, s := range steps {
		if share := maxPlanData / len(steps); len(s.Data) > share {
			s.Data, s.Cut = encode(text.Cut(string(s.Data), share)), true
			steps[id] = s
		}
	}
}

// composePlan gives a plan:execute call its result once all its steps have results.
func (b *builder) composePlan(parent Step) bool {
	steps := map[string]stepResult{}
	failed := 0
	var after []string
	for _, s := range b.s.Turn.Steps {
		if s.Parent != parent.Call {
			continue
		}
		if s.Status != Done {
			return false
		}
		if !s.Result.Success {
			failed++
		}
		after = executor.AddLabels(after, s.labels(b.env.Tools.Lookup)...)
		steps[s.CallID] = stepResult{
			Tool: s.Tool, Success: s.Result.Success, Data: s.Result.Data, Error: s.Result.Error, Note: s.Note,
		}
	}
	fit(steps)
	data := encode(map[string]any{"steps": steps})
	r := tool.Result{Success: true, Data: data}
	if failed > 0 {
		r = tool.Failure(tool.CodeFailed, fmt.Sprintf("%d of %d steps did not succeed", failed, len(steps)))
		r.Data = data
	}
	if len(after) > 0 {
		r.Metadata = map[string]any{tool.MetadataAfter: after}
	}
	b.completeFrom(parent, r, executor.Answer{})
	return true
}

package budget_test

import (
	"encoding/json"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/budget"
)

func ptr(f float64) *float64 { return &f }

func TestTheLongestKeyThatMatchesCounts(t *testing.T) {
	p := budget.Prices{
		"gpt-5*": {Input: new(1.0)}, "gpt-5-mini": {Input: new(2.0)}, "openai/gpt-5-mini": {Input: new(3.0)},
		"meta/*": {Input: new(4.0)}, "*": {Input: new(9.0)},
	}
	for _, c := range []struct {
		provider, model string
		want            float64
	}{
		{"azure", "gpt-5-2026", 1},
		{"azure", "gpt-5-mini", 2},
		{"openai", "gpt-5-mini", 3},
		{"local", "meta/llama/3", 4},
		{"gemini", "flash", 9},
	} {
		if got, ok := p.Of(c.provider, c.model); !ok || *got.Input != c.want {
			t.Errorf("%s/%s costs %v (%t), want %v", c.provider, c.model, *got.Input, ok, c.want)
		}
	}
	delete(p, "*")
	if got, ok := p.Of("gemini", "flash"); ok {
		t.Errorf("an unknown model costs %v", got)
	}
}

func TestCostCountsEachKindOfTokenOnce(t *testing.T) {
	p := budget.Price{Input: new(2.0), CachedInput: ptr(0.2), CacheWrite: ptr(2.5), Output: new(10.0)}
	u := contract.Usage{InputTokens: 1000, CachedTokens: 600, CacheWriteTokens: 300, OutputTokens: 50, ReasoningTokens: 40}
	if got := p.Cost(u); got != 100*2+120+750+500 {
		t.Errorf("costs %d", got)
	}
	u.CachedTokens = 5000 // more than there are
	if got := p.Cost(u); got != 200+500 {
		t.Errorf("costs %d", got)
	}
	if got := (budget.Price{Input: new(2.0)}).Cost(contract.Usage{InputTokens: 10, CachedTokens: 5}); got != 20 {
		t.Errorf("without its own price, cached input costs %d, want 20", got)
	}
}

func TestTheWorstCaseIsNoLessThanTheCost(t *testing.T) {
	p := budget.Price{Input: new(3.0), CacheWrite: ptr(3.75), Output: new(15.0)}
	m, err := json.Marshal(contract.Message{Role: contract.RoleUser, Text: strings.Repeat("漢字", 500)})
	if err != nil {
		t.Fatal(err)
	}
	r := contract.Request{System: "be brief", Messages: []json.RawMessage{m}}
	// Some tokenizers need more than one token for a character of three bytes; none more than three.
	most := contract.Usage{InputTokens: 3000, CacheWriteTokens: 3000, OutputTokens: 100}
	if worst, cost := p.Worst(r, 100), p.Cost(most); worst < cost {
		t.Errorf("the worst case is %d, an answer costs %d", worst, cost)
	}
	pictured := contract.Message{Role: contract.RoleUser, Text: "?", Files: []contract.File{
		{Ref: "a/s/x.png", MediaType: "image/png", Data: make([]byte, 5<<20)},
	}}
	if m, err = json.Marshal(pictured); err != nil {
		t.Fatal(err)
	}
	if worst := p.Worst(contract.Request{Messages: []json.RawMessage{m}}, 0); worst > 40_000 || worst < 5000*3 {
		t.Errorf("the worst case of a picture of 5 MiB is %s", contract.USD(worst))
	}
}

func TestPricesThatCannotBeUsed(t *testing.T) {
	err := budget.Prices{
		"a": {Input: new(-1.0)}, "b": {Output: new(1e9)}, "c": {CachedInput: ptr(-2)}, "d[": {}, "ok": {Input: new(0.0)},
	}.Check()
	for _, want := range []string{
		"a.input is -1", "b.output is 1e+09", "b.input is missing", "c.cached_input is -2", "d[ is not a pattern",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "ok.") {
		t.Errorf("%v, want no complaint about a price without output: embedders have none", err)
	}
	for l, want := range map[budget.Limit]string{
		{USD: -1}: "usd is -1", {USD: 1, Per: "week"}: `per is "week"`,
	} {
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

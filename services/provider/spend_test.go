package provider_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/natstest"
)

// billed answers with a usage, after as many failed tries as it says, and notes what it was asked.
type billed struct {
	name   string
	usage  contract.Usage
	failed *contract.Error // of each try but the last
	tries  int
	asked  []contract.Request
}

func (b *billed) Info() contract.Info { return contract.Info{Name: b.name, Model: "m"} }

func (b *billed) Generate(
	ctx context.Context, r contract.Request, _ func(string, string),
) (contract.Response, error) {
	n := 0
	policy := retry.New(retry.Config{Tries: max(b.tries, 1), Pause: time.Millisecond})
	return policy.Do(ctx, func(context.Context) (contract.Response, bool, error) {
		b.asked = append(b.asked, r)
		if n++; n < b.tries {
			return contract.Response{}, false, b.failed
		}
		return contract.Response{TextContent: "x", Usage: b.usage}, false, nil
	})
}

func costing(most int64) func(*executor.Request) {
	return func(r *executor.Request) { r.Model.MaxCostMicroUSD = &most }
}

func TestCostIsKnownOrSaidToBeUnknown(t *testing.T) {
	prices := budget.Prices{"cloud/m": {Input: new(1.0), Output: new(10.0)}, "half/m": {Input: new(1.0)}}
	for _, c := range []struct {
		name        string
		usage, want contract.Usage
	}{
		{
			"cloud",
			contract.Usage{InputTokens: 100, OutputTokens: 5},
			contract.Usage{InputTokens: 100, OutputTokens: 5, CostMicroUSD: 150},
		},
		{"cloud", contract.Usage{}, contract.Usage{Uncounted: 1, Unpriced: 1}},
		{
			"other",
			contract.Usage{InputTokens: 100, OutputTokens: 5},
			contract.Usage{InputTokens: 100, OutputTokens: 5, Unpriced: 1},
		},
		{
			"half",
			contract.Usage{InputTokens: 100, OutputTokens: 5},
			contract.Usage{InputTokens: 100, OutputTokens: 5, Unpriced: 1},
		},
		{"other", contract.Usage{CostMicroUSD: 7}, contract.Usage{CostMicroUSD: 7}},
		{"local", contract.Usage{InputTokens: 3}, contract.Usage{InputTokens: 3}},
		{"offline", contract.Usage{}, contract.Usage{}},
	} {
		core := start(t, provider.Config{Settings: provider.Settings{Prices: prices}}, &billed{name: c.name, usage: c.usage})
		if a := core.answer(core.ask(question(t, "p", "?"))); a.Response == nil || a.Response.Usage != c.want {
			t.Errorf("%s, %+v: answer is %+v", c.name, c.usage, a)
		}
	}
}

func TestAnAnswerThatMayCostTooMuchIsNotAskedFor(t *testing.T) {
	settings := provider.Settings{Prices: budget.Prices{"cloud/*": {Input: new(1.0), Output: new(10.0)}, "half/*": {Input: new(1.0)}}, MaxTokens: 100}
	for _, c := range []struct {
		name string
		most int64
		says string // in the failure; empty: an answer
	}{
		{"cloud", 1_000_000, ""},
		{"cloud", 900, "0.0009 USD of the agent's limit are left"},
		{"other", 1_000_000, "the price of model m of other is unknown: add it to providers.prices"},
		{"half", 1_000_000, "the price of model m of half is unknown"}, // the part that is missing is not free
		{"offline", 0, ""},
	} {
		a := &billed{name: c.name, usage: contract.Usage{InputTokens: 1}}
		core := start(t, provider.Config{Settings: settings}, a)
		q := question(t, "p", "?")
		costing(c.most)(&q)
		got := core.answer(core.ask(q))
		switch {
		case c.says == "" && (got.Response == nil || len(a.asked) != 1 || a.asked[0].MaxTokens != 100):
			t.Errorf("%+v: answer is %+v, asked is %+v", c, got, a.asked)
		case c.says != "" && (got.Error == nil || got.Error.Code != contract.ErrOverBudget || got.Error.Retryable ||
			!strings.Contains(got.Error.Message, c.says) || len(a.asked) != 0):
			t.Errorf("%+v: answer is %+v, %v, asked %d times", c, got, got.Error, len(a.asked))
		}
	}
}

func TestTheBudgetHoldsAcrossProcesses(t *testing.T) {
	srv := natstest.Start(t)
	settings := provider.Settings{
		Prices: budget.Prices{"m": {Input: new(0.0), Output: new(1000.0)}}, MaxTokens: 100, Budget: budget.Limit{USD: 0.25, Per: budget.Ever},
	}
	ask := func() executor.Answer {
		t.Helper()
		a := &billed{name: "cloud", usage: contract.Usage{OutputTokens: 80}}
		core := startOn(t, srv, provider.Config{Settings: settings}, a) // a new process each time
		return core.answer(core.ask(question(t, "p", "?")))
	}
	for range 2 { // 0.08 USD each
		if a := ask(); a.Response == nil {
			t.Fatalf("answer is %+v, %v", a, a.Error)
		}
	}
	a := ask()
	if a.Error == nil || a.Error.Code != contract.ErrOverBudget || !strings.Contains(a.Error.Message,
		"may cost up to 0.1000 USD, and 0.0900 USD of the budget of 0.2500 USD per ever") {
		t.Errorf("answer is %+v, %v", a, a.Error)
	}
}

// Each try may cost as much as the first: one that came to nothing after the model had worked is not repeated
// beyond the limit, and core learns what it has cost.
func TestEachTryIsHeldAgainstTheLimit(t *testing.T) {
	settings := provider.Settings{Prices: budget.Prices{"m": {Input: new(0.0), Output: new(1000.0)}}, MaxTokens: 100} // 0.1 USD at most
	for _, c := range []struct {
		code  contract.ErrorCode
		asked int
		want  contract.ErrorCode
		spent contract.Usage
	}{
		// it was paid for
		{contract.ErrGarbage, 2, contract.ErrOverBudget, contract.Usage{CostMicroUSD: 200_000, Uncounted: 2}},
		{contract.ErrRateLimited, 3, "", contract.Usage{}}, // it was not
	} {
		a := &billed{name: "cloud", tries: 3, failed: adapter.Errorf(c.code, "no"), usage: contract.Usage{OutputTokens: 1}}
		core := start(t, provider.Config{Settings: settings}, a)
		q := question(t, "p", "?")
		costing(250_000)(&q)
		got := core.answer(core.ask(q))
		if len(a.asked) != c.asked || (c.want == "") != (got.Error == nil) || got.Error != nil && got.Error.Code != c.want {
			t.Errorf("%s: asked %d times, answer is %+v, %v", c.code, len(a.asked), got, got.Error)
		}
		if got.Spent != c.spent {
			t.Errorf("%s: it has spent %+v, want %+v", c.code, got.Spent, c.spent)
		}
	}
}

func TestFilesComeWithTheirContent(t *testing.T) {
	a := &billed{name: "cloud"}
	core := start(t, provider.Config{}, a)
	for name, data := range map[string]string{"a/s/new.png": "new", "a/s/big.png": strings.Repeat("x", 10<<20+1), "b/s/other.png": "secret"} {
		if err := core.bus.PutArtifact(natstest.Context(t), name, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(ref string, size int64) contract.File {
		return contract.File{Ref: ref, MediaType: "image/png", Bytes: size, Data: []byte("forged")}
	}
	m, err := json.Marshal(contract.Message{Role: contract.RoleUser, Text: "look", Files: []contract.File{
		file("a/s/new.png", 3), file("a/s/big.png", 1), file("b/s/other.png", 6), file("a/s/gone.png", 1), file("a/s/../../b/s/other.png", 6),
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := question(t, "p", "?")
	q.Agent, q.Session, q.Model.Messages = "a", "s", []json.RawMessage{m}
	if got := core.answer(core.ask(q)); got.Response == nil {
		t.Fatalf("answer is %+v, %v", got, got.Error)
	}
	talk, err := a.asked[0].Conversation()
	if err != nil || len(talk) != 1 || talk[0].Text != "look" || len(talk[0].Files) != 5 {
		t.Fatalf("asked is %+v, %v", talk, err)
	}
	for i, want := range []string{"new", "", "", "", ""} {
		if got := string(talk[0].Files[i].Data); got != want {
			t.Errorf("the content of %s is %.20q, want %q", talk[0].Files[i].Ref, got, want)
		}
	}
}

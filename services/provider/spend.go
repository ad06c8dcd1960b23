package provider

import (
	"cmp"
	"context"
	"sync/atomic"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
)

// spending is one request with its price, and what is held back for it.
type spending struct {
	price  budget.Price
	known  bool
	worst  int64
	left   *int64           // of the agent's limit; nil: no limit
	ledger *budget.Ledger   // nil: no budget
	settle func(cost int64) // nil while nothing is held back

	begun atomic.Bool    // the API may have begun to answer the try
	spent contract.Usage // by tries that came to nothing, at most
}

// hold finds the price of a request and holds back its worst case. It fails with over_budget
// if the answer could cost more than it may. Where a limit applies, the request gets a bound
// of its tokens.
func (s *service) hold(
	ctx context.Context, info contract.Info, own bool, req *contract.Request,
) (*spending, *contract.Error) {
	info.Model = cmp.Or(req.Model, info.Model)
	sp := s.priced(info, own, budget.Price.OfAnswers)
	if req.MaxCostMicroUSD == nil && s.ledger == nil {
		return sp, nil
	}
	if !sp.known {
		return nil, unpriced(info)
	}
	if req.MaxTokens == 0 {
		req.MaxTokens = cmp.Or(s.cfg.MaxTokens, defaultMaxTokens)
	}
	sp.worst = sp.price.Worst(*req, req.MaxTokens)
	if most := req.MaxCostMicroUSD; most != nil {
		sp.left = new(*most)
	}
	return sp, sp.reserve(ctx)
}

// holdTexts is hold for the embeddings of texts, to which no agent's limit applies.
func (s *service) holdTexts(ctx context.Context, info contract.Info, texts []string) (*spending, *contract.Error) {
	sp := s.priced(info, true, forTexts)
	if s.ledger == nil {
		return sp, nil
	}
	if !sp.known {
		return nil, unpriced(info)
	}
	sp.worst = sp.price.WorstOfTexts(texts)
	return sp, sp.reserve(ctx)
}

// priced finds the price of a provider's model.
func (s *service) priced(info contract.Info, own bool, suffices func(budget.Price) bool) *spending {
	price, known := s.price(info, own, suffices)
	return &spending{ledger: s.ledger, price: price, known: known}
}

// price returns the price of a provider's model. It is known if it suffices, or if the
// provider is free and the configuration does not say otherwise.
func (s *service) price(info contract.Info, own bool, suffices func(budget.Price) bool) (budget.Price, bool) {
	price, listed := s.cfg.Prices.Of(info.Name, info.Model)
	if !listed {
		return price, own && free(info.Name)
	}
	return price, suffices(price)
}

// forTexts reports that any price suffices for embeddings: they have no output.
func forTexts(budget.Price) bool { return true }

func unpriced(info contract.Info) *contract.Error {
	return adapter.Errorf(contract.ErrOverBudget, "a limit of costs applies, and the price of model %s of %s is unknown: "+
		"add it to providers.prices in the configuration file, with input and output", info.Model, info.Name)
}

// reserve holds back the worst case of one try.
func (sp *spending) reserve(ctx context.Context) (failure *contract.Error) {
	if sp.left != nil && sp.worst > *sp.left {
		return adapter.Errorf(contract.ErrOverBudget, "the answer may cost up to %s, and %s of the agent's limit are left",
			contract.USD(sp.worst), contract.USD(*sp.left))
	}
	if sp.ledger != nil {
		sp.settle, failure = sp.ledger.Reserve(ctx, sp.worst)
	}
	return failure
}

// again is the gate of an adapter's tries (retry.WithGate): the one before has failed, and the next
// may cost as much.
func (sp *spending) again(ctx context.Context) func(error) error {
	return func(failed error) error {
		sp.failed(adapter.Failure(failed))
		if failure := sp.reserve(ctx); failure != nil {
			failure.Message += "; the try before failed: " + adapter.Failure(failed).Message
			return failure
		}
		return nil
	}
}

// free reports whether a provider costs nothing unless it has a price: it runs on the user's
// own machine.
func free(name string) bool { return name == NameOffline || name == NameLocal || name == NameOllama }

// paid completes the usage of an answer with its cost, and settles what was held back. A
// provider that reports its cost, such as a plugin, is believed.
func (sp *spending) paid(u *contract.Usage) {
	if u.InputTokens == 0 && u.OutputTokens == 0 && u.CostMicroUSD == 0 && !sp.costsNothing() {
		u.Uncounted = 1
	}
	switch {
	case u.CostMicroUSD > 0 || sp.costsNothing():
		u.Unpriced = 0
	case sp.known && u.Uncounted == 0:
		u.CostMicroUSD, u.Unpriced = sp.price.Cost(*u), 0
	default:
		u.Unpriced = 1
	}
	if sp.settle != nil {
		cost := u.CostMicroUSD
		if u.Unpriced > 0 {
			cost = sp.worst
		}
		sp.settle(cost)
	}
	*u = u.Add(sp.spent)
}

// costsNothing reports whether the price is known to be zero.
func (sp *spending) costsNothing() bool { return sp.known && sp.price.IsZero() }

// failed settles a try without an answer. If the model may have worked, what it cost is not
// known, and its worst case counts.
func (sp *spending) failed(why *contract.Error) {
	cost := sp.worst
	switch why.Code {
	case contract.ErrAuth, contract.ErrRateLimited, contract.ErrBadRequest, contract.ErrUnavailable, contract.ErrOverBudget:
		if !sp.begun.Load() {
			cost = 0
		}
	case contract.ErrTimeout, contract.ErrGarbage, contract.ErrTooLong, contract.ErrInternal:
		sp.begun.Store(true)
	}
	if sp.begun.Swap(false) && !sp.costsNothing() {
		sp.spent.Uncounted++
		if sp.spent.CostMicroUSD += cost; cost == 0 {
			sp.spent.Unpriced++
		}
	}
	if sp.left != nil {
		*sp.left -= cost
	}
	if sp.settle != nil {
		sp.settle(cost)
		sp.settle = nil
	}
}

package provider

import (
	"context"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
)

// checkWait bounds asking an API whether it answers.
const checkWait = 3 * time.Second

// report answers requests about the providers of this process.
func (s *service) report() (*bus.Responder, error) {
	return s.bus.Respond(subject.Service(providerapi.ServiceName, string(s.bus.Instance())), providerapi.ServiceName,
		providerapi.ServiceName, func(q *bus.Request) {
			coreapi.Answer(q, func(q *bus.Request) (any, error) { return s.describe(q.Context()), nil })
		})
}

// describe asks the adapters' APIs, all at the same time.
func (s *service) describe(ctx context.Context) providerapi.Report {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	out := providerapi.Report{Instance: s.bus.Instance(), Providers: make([]providerapi.Provider, len(s.adapters))}
	var all sync.WaitGroup
	for i, a := range s.adapters {
		out.Providers[i] = s.described(a.Info(), true, budget.Price.OfAnswers)
		if c, ok := a.(adapter.Checker); ok {
			all.Go(func() { checked(ctx, c, &out.Providers[i]) })
		}
	}
	if s.embedder != nil {
		out.Embedder = new(s.embedding())
		all.Go(func() { reached(ctx, s.embedder, out.Embedder) })
	}
	if s.transcriber != nil {
		all.Go(func() { out.Transcriber = voiceChecked(ctx, s.transcriber) })
	}
	if s.speaker != nil {
		all.Go(func() { out.Speaker = voiceChecked(ctx, s.speaker) })
	}
	if s.ledger != nil {
		all.Go(func() { out.Budget = s.account(ctx) })
	}
	all.Wait()
	if s.remote != nil {
		for _, p := range *s.remote.list.Load() {
			d := s.described(p.info, false, budget.Price.OfAnswers)
			d.Plugin = p.plugin
			out.Providers = append(out.Providers, d)
		}
	}
	return out
}

func (s *service) described(i contract.Info, own bool, suffices func(budget.Price) bool) providerapi.Provider {
	p := providerapi.Provider{Name: i.Name, Model: i.Model, Note: i.Note}
	if price, known := s.price(i, own, suffices); known {
		p.Price = shown(price)
	}
	return p
}

func shown(p budget.Price) *providerapi.Price {
	var out providerapi.Price
	if p.Input != nil {
		out.Input, out.CachedInput, out.CacheWrite = *p.Input, *p.Input, *p.Input
	}
	if p.Output != nil {
		out.Output = *p.Output
	}
	if p.CachedInput != nil {
		out.CachedInput = *p.CachedInput
	}
	if p.CacheWrite != nil {
		out.CacheWrite = *p.CacheWrite
	}
	return &out
}

// checked adds what an adapter's API says.
func checked(ctx context.Context, c adapter.Checker, p *providerapi.Provider) {
	models, err := c.Models(ctx)
	p.Reachable = new(err == nil)
	if err != nil {
		p.Error = adapter.Failure(err).Message
	}
	p.Models = slices.Sorted(slices.Values(models))
	p.Models = p.Models[:min(len(p.Models), providerapi.MaxModels)]
	p.Breaker = new(c.Breaker())
}

func (s *service) account(ctx context.Context) *providerapi.Budget {
	limit := s.cfg.Budget
	out := &providerapi.Budget{LimitMicroUSD: limit.MicroUSD(), Per: string(limit.Period())}
	if spent, err := s.ledger.Spent(ctx); err == nil {
		out.SpentMicroUSD = &spent
	}
	return out
}

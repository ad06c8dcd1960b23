package httpapi

import contract "skandha.dev/pkg/provider"

// Bill completes the usage of one answer: what it cost, and what is unknown about it. No
// answer takes zero tokens, so an API that reports zero has counted nothing.
func (p Prices) Bill(u contract.Usage) contract.Usage {
	u.InputTokens, u.OutputTokens = max(u.InputTokens, 0), max(u.OutputTokens, 0)
	u.CachedTokens = min(max(u.CachedTokens, 0), u.InputTokens)
	u.CacheWriteTokens = min(max(u.CacheWriteTokens, 0), u.InputTokens-u.CachedTokens)
	u.ReasoningTokens = min(max(u.ReasoningTokens, 0), u.OutputTokens)
	switch {
	case u.InputTokens == 0 && u.OutputTokens == 0:
		u.Uncounted, u.Unpriced = 1, 1
	case p == Prices{}:
		u.Unpriced = 1
	default:
		u.CostMicroUSD = p.Cost(u.InputTokens, u.CachedTokens, u.OutputTokens)
	}
	return u
}

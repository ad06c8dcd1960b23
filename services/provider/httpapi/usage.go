package httpapi

import contract "skandha.dev/pkg/provider"

// maxTokens is more than any answer takes.
const maxTokens = 1e9

// Counted returns the usage that an API reports for one answer, within its bounds. No answer
// takes zero tokens, so an API that reports zero has counted nothing, like one whose numbers
// are impossible. The service adds what the answer cost; until then that is unknown.
func Counted(u contract.Usage) contract.Usage {
	if min(u.InputTokens, u.OutputTokens) < 0 || max(u.InputTokens, u.OutputTokens) > maxTokens {
		u = contract.Usage{}
	}
	u.CachedTokens = min(max(u.CachedTokens, 0), u.InputTokens)
	u.CacheWriteTokens = min(max(u.CacheWriteTokens, 0), u.InputTokens-u.CachedTokens)
	u.ReasoningTokens = min(max(u.ReasoningTokens, 0), u.OutputTokens)
	if u.Unpriced = 1; u.InputTokens == 0 && u.OutputTokens == 0 {
		u.Uncounted = 1
	}
	return u
}

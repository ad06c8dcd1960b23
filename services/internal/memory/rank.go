package memory

import (
	"cmp"
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/services/internal/lexical"
)

// maxTerms bounds the words of a query that count, so that a pasted document costs no more
// than a long question.
const maxTerms = 64

// Terms returns the words of a query, each once, that a lexical ranking looks for.
func Terms(text string) []string {
	var out []string
	for _, t := range lexical.Terms(text) {
		if len(out) == maxTerms {
			break
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// Rank sorts hits: best first, then newest first, then by id. It returns at most limit.
func Rank(hits []memory.Hit, limit int) []memory.Hit {
	slices.SortFunc(hits, func(a, b memory.Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), CursorOf(a.Memory).Compare(CursorOf(b.Memory)))
	})
	return hits[:min(limit, len(hits))]
}

// settling is the constant of reciprocal rank fusion: the larger, the less the first
// ranks differ from the next ones.
const settling = 60

// Merge merges two rankings of different memories by reciprocal rank: the score of a hit
// becomes 1/(60+rank). Similarities and sums of BM25 cannot be compared, but ranks can. Of
// two hits of the same rank, the semantic one is first. If one ranking is empty, the other
// one keeps its scores.
func Merge(semantic, words []memory.Hit, limit int) []memory.Hit {
	switch {
	case len(words) == 0:
		return semantic[:min(limit, len(semantic))]
	case len(semantic) == 0:
		return words[:min(limit, len(words))]
	}
	var all []memory.Hit
	for _, ranking := range [][]memory.Hit{semantic, words} {
		for i, h := range ranking {
			h.Score = 1 / float64(settling+i+1)
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b memory.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return all[:min(limit, len(all))]
}

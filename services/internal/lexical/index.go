package lexical

import (
	"cmp"
	"math"
	"slices"
)

// The parameters of BM25: how soon further occurrences of a term count less, and how much
// the length of a text matters.
const (
	saturation = 1.2
	lengthPart = 0.75
)

// Builder collects the texts of an [Index].
type Builder struct {
	only     map[string]bool // nil: all terms
	postings map[string][]posting
	lengths  []int
	total    int
}

type posting struct {
	text  int
	count int
}

// NewBuilder returns a Builder that keeps the terms of one query alone, so that many long
// texts can be ranked in little memory; without a query, it keeps all terms.
func NewBuilder(query ...string) *Builder {
	b := &Builder{postings: map[string][]posting{}}
	if len(query) > 0 {
		b.only = map[string]bool{}
	}
	for _, t := range query {
		b.only[t] = true
	}
	return b
}

// Add adds a text by its terms. Texts are numbered from 0 in the order of Add.
func (b *Builder) Add(terms ...string) {
	text := len(b.lengths)
	b.lengths = append(b.lengths, len(terms))
	b.total += len(terms)
	for _, t := range terms {
		if b.only != nil && !b.only[t] {
			continue
		}
		p := b.postings[t]
		if n := len(p); n > 0 && p[n-1].text == text {
			p[n-1].count++
			continue
		}
		b.postings[t] = append(p, posting{text, 1})
	}
}

// Index returns the index of all texts. The Builder must not be used any more.
func (b *Builder) Index() *Index {
	x := &Index{postings: b.postings, lengths: make([]float64, len(b.lengths))}
	for i, n := range b.lengths {
		x.lengths[i] = 1 - lengthPart
		if b.total > 0 {
			x.lengths[i] += lengthPart * float64(n) * float64(len(b.lengths)) / float64(b.total)
		}
	}
	return x
}

// Index ranks texts by BM25. It is immutable.
type Index struct {
	postings map[string][]posting
	lengths  []float64 // of each text, as it divides the counts
}

// Hit is a text that shares a term with a query.
type Hit struct {
	Text  int     // its number
	Score float64 // larger than 0; comparable within one index
}

// Weight returns how much a term counts: the rarer, the more. It is 0 for a term that no
// text has.
func (x *Index) Weight(term string) float64 {
	if within := len(x.postings[term]); within > 0 {
		return x.rarity(within)
	}
	return 0
}

// Rarest returns the weight of a term that a single text has, which is the largest.
func (x *Index) Rarest() float64 { return x.rarity(1) }

func (x *Index) rarity(within int) float64 {
	n := float64(within)
	return math.Log(1 + max(float64(len(x.lengths))-n+0.5, 0.5)/(n+0.5))
}

// Search returns the texts that share a term with the query, best first, at most limit.
// Among equals, the one that was added last comes first. Repeated terms of the query
// count once.
func (x *Index) Search(query []string, limit int) []Hit {
	scores := make([]float64, len(x.lengths))
	for _, term := range distinct(query) {
		weight := x.Weight(term)
		for _, p := range x.postings[term] {
			n := float64(p.count)
			scores[p.text] += weight * n * (saturation + 1) / (n + saturation*x.lengths[p.text])
		}
	}
	var hits []Hit
	for text, score := range slices.Backward(scores) {
		if score > 0 {
			hits = append(hits, Hit{text, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(max(limit, 0), len(hits))]
}

// distinct returns the terms without repetitions, in order, so that sums are the same each time.
func distinct(terms []string) []string {
	seen := make(map[string]bool, len(terms))
	out := make([]string, 0, len(terms))
	for _, t := range terms {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

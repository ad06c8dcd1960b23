package match

import (
	"cmp"
	"slices"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/store"
)

// Request is what tools are ranked for.
type Request struct {
	Text     string // what the user said; of a long text, both ends are read
	Intent   string // what is to be done, if that is known, such as "send message"
	Scenario string // of tool.Scenarios(): only tools with this tag or without any; if none has it, all

	Vector []float32 // of Text, of length 1; nil: tools are matched by words
	Model  string    // which made Vector

	Allowed   func(tool.Spec) bool        // whether the tool may be called; nil: all may
	Stats     func(string) store.ToolStat // by name; nil: none was ever used
	Preferred map[string]float64          // by name, 0 to 1: chosen by the guide, or proven for like requests
	Limit     int                         // 0: all tools
}

// Method is how the fit of a tool was found.
type Method string

// The methods.
const (
	Lexical  Method = "lexical"  // by words, and by the concepts that the lexicon knows for words
	Semantic Method = "semantic" // by embeddings: no words are shared
	Hybrid   Method = "hybrid"   // by both
)

// Candidate is a tool and why it has its rank. All factors are 0 to 1, larger is better.
type Candidate struct {
	Tool       tool.Spec
	Score      float64 // see [Score]
	Fit        float64 // of the request and the tool's texts; 0: nothing in common
	Success    float64 // expected probability that a call succeeds
	Latency    float64 // 0.5 at [TypicalLatency], or if the tool was never used
	Risk       float64 // 1 for low risk, 0 for high
	Preference float64
	Method     Method
	Failing    bool   // most of at least [FewCalls] calls failed: ranked last
	Why        string // for people, in one line

	place int // in the catalog
}

// Rank returns the tools that fit best, at most q.Limit, best first.
//
// Fit and preference decide which tools these are, in the proportion that they have in
// [Score]; Score decides their order. So a tool that has often succeeded at something else
// takes no place from one that fits. If fewer tools fit, others with a Fit of 0 follow.
func (c *Catalog) Rank(q Request) []Candidate {
	fits := c.fit(q)
	all := make([]*Candidate, 0, len(c.tools)) // they are large, and sorting moves them
	for i := range c.open(q) {
		all = append(all, c.evaluate(i, q, fits))
	}
	slices.SortFunc(all, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.relevance(), a.relevance()), compare(a, b))
	})
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	slices.SortFunc(all, compare)
	out := make([]Candidate, len(all))
	for i, candidate := range all {
		out[i] = *candidate
		out[i].Why = c.why(*candidate, fits)
	}
	return out
}

// relevance decides whether a tool is among the first.
func (c *Candidate) relevance() float64 { return fitPart*c.Fit + preferencePart*c.Preference }

// compare orders what fits before what does not, failing tools last, and then by score.
func compare(a, b *Candidate) int {
	last := func(c *Candidate) int {
		switch {
		case c.Failing:
			return 2
		case c.relevance() == 0:
			return 1
		}
		return 0
	}
	return cmp.Or(last(a)-last(b), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Tool.Name, b.Tool.Name))
}

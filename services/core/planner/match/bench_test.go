package match_test

import (
	"slices"
	"testing"

	"skandha.dev/services/core/planner/match"
)

// BenchmarkRank ranks the labelled tools for each labelled request in turn.
func BenchmarkRank(b *testing.B) {
	c := match.New(labelled(b))
	all := requests(b, "requests.tsv")
	i := 0
	for b.Loop() {
		c.Rank(match.Request{Text: all[i%len(all)].text, Limit: first})
		i++
	}
}

// BenchmarkNew prepares the labelled tools.
func BenchmarkNew(b *testing.B) {
	tools := labelled(b)
	for b.Loop() {
		match.New(tools)
	}
}

// BenchmarkKeeper prepares the labelled tools after one of them has changed.
func BenchmarkKeeper(b *testing.B) {
	var k match.Keeper
	tools := labelled(b)
	for b.Loop() {
		tools = append(slices.Clone(tools[1:]), tools[0])
		k.Catalog(tools, match.Vectors{})
	}
}

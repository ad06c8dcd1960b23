package main

import (
	"math"
	"strings"

	"skandha.dev/pkg/plugin"
)

// The parameters of BM25: how soon further occurrences of a word count less, and how much
// the length of a text matters.
const (
	saturation = 1.2
	lengthPart = 0.75
)

// score returns the records that have one of the words, with their scores by BM25.
func score(records []plugin.Record, words string) (found []plugin.Record) {
	wanted := strings.Fields(words)
	counts, lengths := make([]map[string]float64, len(records)), make([]float64, len(records))
	within, total := map[string]float64{}, 0.0
	for i, r := range records {
		counts[i] = map[string]float64{}
		for _, w := range strings.Fields(r.Words) {
			counts[i][w]++
			lengths[i]++
		}
		total += lengths[i]
		for _, w := range wanted {
			if counts[i][w] > 0 {
				within[w]++
			}
		}
	}
	for i, r := range records {
		r.Score = 0
		for _, w := range wanted {
			n := counts[i][w]
			rarity := math.Log(1 + (float64(len(records))-within[w]+0.5)/(within[w]+0.5))
			length := 1 - lengthPart + lengthPart*lengths[i]*float64(len(records))/max(total, 1)
			r.Score += rarity * n * (saturation + 1) / (n + saturation*length)
		}
		if r.Score > 0 {
			found = append(found, r)
		}
	}
	return found
}

// dot returns the cosine of the angle between vectors of length 1.
func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

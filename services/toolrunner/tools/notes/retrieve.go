package notes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Memory is a note and its score for a query.
type Memory struct {
	Note
	Score float64 `json:"score"` // higher is better; comparable within one answer only
}

// retrieve is notes:search for services and hooks: it ranks notes, so that a whole sentence of a
// user can be the query.
func retrieve(b Book) tools.Tool {
	return tools.New(tool.Spec{
		Name: "memory:retrieve",
		Description: "Finds the notes of notes:add that share words with the query, best first: rare words count more, " +
			"long notes less. No note has to hold all of the words.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"query":{"type":"string","description":"any text, such as what the user said"},
			"limit":{"type":"integer","minimum":1,"maximum":100,"default":5}},
			"required":["query"],"additionalProperties":false}`),
		Idempotent: true, Internal: true, Risk: tool.RiskLow, Permissions: []string{"fs.read"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	},
	) tool.Result {
		if args.Limit <= 0 {
			args.Limit = 5
		}
		found, err := b.Retrieve(ctx, c.Agent, args.Query, args.Limit)
		if err != nil {
			return tools.Fail(fmt.Errorf("retrieving memories: %w", err))
		}
		return tool.OK(map[string]any{"memories": found})
	})
}

// Retrieve ranks the notes by BM25.
func (b *book) Retrieve(ctx context.Context, agent subject.Agent, query string, limit int) ([]Memory, error) {
	r := newRanking(query)
	err := b.each(ctx, agent, r.add)
	return r.best(limit), err
}

// The parameters of BM25: how soon further occurrences of a word count less, and how much
// the length of a note matters.
const (
	saturation = 1.2
	lengthPart = 0.75
)

// ranking holds the notes that share a word with a query.
type ranking struct {
	words  map[string]int // of the query, to its place in hit.counts
	within []int          // how many notes contain it
	notes  int
	length int // of all notes, in words
	hits   []hit
}

type hit struct {
	note   Note
	counts []int // occurrences of each word of the query
	length int
}

func newRanking(query string) *ranking {
	r := &ranking{words: map[string]int{}}
	for _, w := range words(query) {
		if _, known := r.words[w]; !known {
			r.words[w] = len(r.words)
		}
	}
	r.within = make([]int, len(r.words))
	return r
}

func (r *ranking) add(n Note) {
	h := hit{note: n}
	for _, w := range words(n.Text) {
		h.length++
		i, wanted := r.words[w]
		if !wanted {
			continue
		}
		if h.counts == nil {
			h.counts = make([]int, len(r.words))
		}
		h.counts[i]++
	}
	r.notes++
	r.length += h.length
	if h.counts == nil {
		return
	}
	for i, count := range h.counts {
		if count > 0 {
			r.within[i]++
		}
	}
	r.hits = append(r.hits, h)
}

// best returns the notes with the highest scores; among equals, newer ones first.
func (r *ranking) best(limit int) []Memory {
	out := make([]Memory, 0, len(r.hits))
	for _, h := range slices.Backward(r.hits) {
		out = append(out, Memory{h.note, r.score(h)})
	}
	slices.SortStableFunc(out, func(a, b Memory) int { return cmp.Compare(b.Score, a.Score) })
	return out[:min(limit, len(out))]
}

func (r *ranking) score(h hit) (sum float64) {
	long := 1 - lengthPart + lengthPart*float64(h.length)*float64(r.notes)/float64(r.length)
	for i, count := range h.counts {
		n, within := float64(count), float64(r.within[i])
		rare := math.Log(1 + (float64(r.notes)-within+0.5)/(within+0.5))
		sum += rare * n * (saturation + 1) / (n + saturation*long)
	}
	return math.Round(sum*1e4) / 1e4
}

// words splits a text into words in lower case. In scripts that put no spaces between
// words, each pair of neighbouring characters is one.
func words(text string) (out []string) {
	for _, run := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	}) {
		out = append(out, split(run)...)
	}
	return out
}

func split(run string) (out []string) {
	letters := []rune(run)
	for start := 0; start < len(letters); {
		end := start + 1
		for end < len(letters) && unspaced(letters[end]) == unspaced(letters[start]) {
			end++
		}
		part := letters[start:end]
		start = end
		if !unspaced(part[0]) || len(part) == 1 {
			out = append(out, string(part))
			continue
		}
		for i := range len(part) - 1 {
			out = append(out, string(part[i:i+2]))
		}
	}
	return out
}

func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer,
		unicode.Myanmar)
}

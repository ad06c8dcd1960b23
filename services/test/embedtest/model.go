// Package embedtest is a model of embeddings for tests, and an Ollama server that has it. The
// servers of packages openaitest and geminitest have it, too.
//
// The vectors mean something: texts that share a concept of the test's dictionary are near
// each other, whatever their words, and texts that share words are a little nearer than
// others. The same text always has the same vector.
package embedtest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"unicode"
)

// Dimension of the vectors, unless a test sets another.
const Dimension = 128

// Name is the name of the model on every wire.
const Name = "toy-embed"

// The shares of a text's concepts and words in its vector.
const (
	conceptWeight = 1
	wordWeight    = 0.15
)

// Model computes vectors. The zero value knows no concepts.
type Model struct {
	// Concepts are what texts may be about, each with the words and phrases that mean it, in
	// lower case; a text is about a concept that one of them occurs in.
	Concepts map[string][]string
	// Fixed are the vectors of single texts, instead of those that are computed.
	Fixed map[string][]float32
	// Dimension is that of computed vectors; 0: [Dimension].
	Dimension int

	mu       sync.Mutex
	texts    []string
	requests int
	next     []http.HandlerFunc
}

// Texts lists the texts that were embedded, in order.
func (m *Model) Texts() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.texts...)
}

// Embed returns a vector per text, not of length 1.
func (m *Model) Embed(texts []string) [][]float32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts = append(m.texts, texts...)
	out := make([][]float32, len(texts))
	for i, t := range texts {
		out[i] = m.vector(t)
	}
	return out
}

func (m *Model) vector(text string) []float32 {
	if v, ok := m.Fixed[text]; ok {
		return v
	}
	n := m.Dimension
	if n == 0 {
		n = Dimension
	}
	sum := make([]float64, n)
	text = strings.ToLower(text)
	for concept, phrases := range m.Concepts {
		for _, p := range phrases {
			if strings.Contains(text, p) {
				add(sum, "concept "+concept, conceptWeight)
				break
			}
		}
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, w := range append(words, "") { // never the vector of length 0
		add(sum, "word "+w, wordWeight/math.Sqrt(float64(len(words)+1)))
	}
	out := make([]float32, n)
	for i, x := range sum {
		out[i] = float32(x)
	}
	return out
}

// add adds the direction that belongs to a name, with a length.
func add(sum []float64, name string, length float64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	random := rand.New(rand.NewPCG(h.Sum64(), 0))
	for i := range sum {
		sum[i] += length * random.NormFloat64() / math.Sqrt(float64(len(sum)))
	}
}

// Tokens is how many tokens the servers count: one per word.
func Tokens(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(strings.Fields(t))
	}
	return n
}

package match

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/lexical"
	"skandha.dev/services/internal/runes"
)

// How often the words of a field count.
const (
	nameWeight        = 3
	descriptionWeight = 2
	argumentWeight    = 1
)

const (
	maxField = 4 << 10 // bytes of a description that are read
	maxDepth = 5       // levels of a schema that are read
	maxArgs  = 200     // properties of a schema that are read
)

// Catalog is the prepared index of a list of tools. It is immutable.
type Catalog struct {
	tools    []tool.Spec
	words    side
	concepts side
	vectors  Vectors
}

// side is one way to compare texts by terms: by their words, or by their concepts.
type side struct {
	index *lexical.Index
	has   []map[string]bool // the terms of each tool
	scale float64           // score of a term that a single tool has
}

// Vectors are the embeddings of tools.
type Vectors struct {
	Model string               // which made them, e.g. "openai/text-embedding-3-small"
	Of    map[string][]float32 // by digest, of length 1; tools may be missing
}

// described is a tool's words and concepts, repeated by their weight.
type described struct{ words, concepts []string }

// New prepares the index of the tools.
func New(tools []tool.Spec) *Catalog { return prepare(tools, describe) }

func prepare(tools []tool.Spec, describe func(tool.Spec) described) *Catalog {
	words, concepts := newSideBuilder(), newSideBuilder()
	for _, t := range tools {
		d := describe(t)
		words.add(d.words)
		concepts.add(d.concepts)
	}
	return &Catalog{tools: tools, words: words.side(), concepts: concepts.side()}
}

// With returns the catalog with vectors of its tools.
func (c *Catalog) With(v Vectors) *Catalog {
	with := *c
	with.vectors = v
	return &with
}

// Text returns what the embedding of a tool is computed from.
func Text(t tool.Spec) string {
	name := strings.Join(lexical.Terms(t.Name), " ")
	piece, _ := runes.Split(t.Description, maxField)
	return name + ": " + piece
}

func describe(t tool.Spec) (d described) {
	add := func(text string, weight int) {
		text, _ = runes.Split(text, maxField)
		w := lexical.Terms(text)
		c := lexicon().of(text)
		for range weight {
			d.words, d.concepts = append(d.words, w...), append(d.concepts, c...)
		}
	}
	add(t.Name, nameWeight)
	add(strings.Join(lexicon().compounds(t.Name), " "), nameWeight)
	add(t.Description, descriptionWeight)
	add(strings.Join(t.ScenarioTags, " "), argumentWeight)
	add(argumentText(t.Args), argumentWeight)
	d.concepts = append(d.concepts, lexicon().implied(d.concepts)...)
	return d
}

// schema is what a JSON Schema says in words.
type schema struct {
	Title       string                     `json:"title"`
	Description string                     `json:"description"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Items       json.RawMessage            `json:"items"`
	Enum        []any                      `json:"enum"`
}

// argumentText returns names, descriptions and values of the arguments.
func argumentText(args json.RawMessage) string {
	var out []string
	left := maxArgs
	var walk func(raw json.RawMessage, depth int)
	walk = func(raw json.RawMessage, depth int) {
		var s schema
		if len(raw) == 0 || depth > maxDepth || json.Unmarshal(raw, &s) != nil {
			return
		}
		out = append(out, s.Title, s.Description)
		for _, v := range s.Enum {
			if word, ok := v.(string); ok {
				out = append(out, word)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if left--; left < 0 {
				return
			}
			out = append(out, name)
			walk(s.Properties[name], depth+1)
		}
		walk(s.Items, depth+1)
	}
	walk(args, 0)
	return strings.Join(out, " \n")
}

type sideBuilder struct {
	terms *lexical.Builder
	has   []map[string]bool
}

func newSideBuilder() *sideBuilder { return &sideBuilder{terms: lexical.NewBuilder()} }

func (b *sideBuilder) add(terms []string) {
	b.terms.Add(terms...)
	set := make(map[string]bool, len(terms))
	for _, t := range terms {
		set[t] = true
	}
	b.has = append(b.has, set)
}

func (b *sideBuilder) side() side {
	s := side{index: b.terms.Index(), has: b.has}
	s.scale = s.index.Rarest()
	return s
}

// scores returns the score of each tool in units of a term that a single tool has.
func (s side) scores(query []string) []float64 {
	out := make([]float64, len(s.has))
	for _, h := range s.index.Search(query, len(s.has)) {
		out[h.Text] = h.Score / s.scale
	}
	return out
}

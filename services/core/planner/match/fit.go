package match

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/lexical"
	"skandha.dev/services/internal/runes"
)

const (
	// conceptPart is how much a shared concept counts beside a shared word. A word that is
	// in the lexicon counts as both.
	conceptPart = 2.0
	// impliedPart is how much a concept counts that a concept of the request implies.
	impliedPart = 0.3
	// hintedPart is how much a concept counts that a character of the request hints at.
	hintedPart = 0.3
	// semanticPart is the part of embeddings in the fit of a tool that has one.
	semanticPart = 0.5
	// maxEnd is how much of either end of a long text is read, in bytes.
	maxEnd = 2 << 10
)

// fits holds the fit of all tools to a request.
type fits struct {
	words, concepts []string // of the request
	values          []float64
	methods         []Method
}

// open yields the tools that may be called, and that the scenario is about. Tools without
// tags are for all scenarios.
func (c *Catalog) open(q Request) iter.Seq[int] {
	tagged := q.Scenario != "" && slices.ContainsFunc(c.tools, func(t tool.Spec) bool {
		return slices.Contains(t.ScenarioTags, q.Scenario) && (q.Allowed == nil || q.Allowed(t))
	})
	return func(yield func(int) bool) {
		for i, t := range c.tools {
			switch {
			case tagged && len(t.ScenarioTags) > 0 && !slices.Contains(t.ScenarioTags, q.Scenario):
			case q.Allowed != nil && !q.Allowed(t):
			case !yield(i):
				return
			}
		}
	}
}

// fit compares the request with every tool.
//
// The best tool fits as well as its score says on its own; the others in proportion to it.
// On its own, s of shared words counts as s/(1+s), where 1 is a word that no other tool
// has, and a cosine counts as it is.
func (c *Catalog) fit(q Request) fits {
	text := kinds(ends(q.Text) + "\n" + ends(q.Intent))
	f := fits{words: lexical.Terms(text), methods: make([]Method, len(c.tools))}
	f.concepts = lexicon().of(text)
	f.words = content(f.words)
	f.values = c.words.scores(f.words)
	implied := c.concepts.scores(lexicon().implied(f.concepts))
	hinted := c.concepts.scores(lexicon().hints(text))
	for i, s := range c.concepts.scores(f.concepts) {
		f.values[i] += conceptPart * (s + impliedPart*implied[i] + hintedPart*hinted[i])
		f.methods[i] = Lexical
	}
	best := slices.Max(append(f.values, 0))
	strength := best / (1 + best)
	for i := range f.values {
		if best > 0 {
			f.values[i] /= best
		}
	}
	near, has, top := c.near(q)
	strength = max(strength, top)
	for i := range f.values {
		if has[i] {
			f.blend(i, near[i], best > 0)
		}
		f.values[i] *= strength
	}
	return f
}

// blend adds what the embedding of tool i says, 0 to 1.
func (f *fits) blend(i int, near float64, lexical bool) {
	if !lexical {
		f.values[i], f.methods[i] = near, Semantic
		return
	}
	f.methods[i] = Hybrid
	if f.values[i] == 0 {
		f.methods[i] = Semantic
	}
	f.values[i] = semanticPart*near + (1-semanticPart)*f.values[i]
}

// near compares the request's vector with those of the tools: 1 for the nearest tool, 0 for
// one that is no nearer than most. top is the cosine of the nearest.
func (c *Catalog) near(q Request) (near []float64, has []bool, top float64) {
	near, has = make([]float64, len(c.tools)), make([]bool, len(c.tools))
	if q.Vector == nil || q.Model != c.vectors.Model {
		return near, has, 0
	}
	sum, n := 0.0, 0
	for i, t := range c.tools {
		v := c.vectors.Of[t.Digest()]
		if len(v) != len(q.Vector) {
			continue
		}
		near[i], has[i] = cosine(v, q.Vector), true
		top = max(top, near[i])
		sum += near[i]
		n++
	}
	if n == 0 {
		return near, has, 0
	}
	mean := sum / float64(n)
	if n == 1 {
		mean = 0
	}
	for i := range near {
		if top > mean {
			near[i] = max(0, (near[i]-mean)/(top-mean))
		}
	}
	return near, has, min(top, 1)
}

// cosine is of vectors of length 1.
func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// ends returns both ends of a long text: what is asked for is before or after what was pasted.
func ends(text string) string {
	if len(text) <= 2*maxEnd {
		return text
	}
	head, _ := runes.Split(text, maxEnd)
	tail := text[len(text)-maxEnd:]
	start, _ := runes.Whole([]byte(tail), len(tail), true)
	return head + "\n" + tail[start:]
}

// Data in a request says what it is by its form, and nothing by its words.
var (
	urls      = regexp.MustCompile(`https?://\S+`)
	addresses = regexp.MustCompile(`[\w.+-]+@[\w-]+\.[\w.]+`)
	fileNames = regexp.MustCompile(`(?i)[\w./\\-]+\.(?:txt|log|md|gz|go|py|` +
		`(pdf|docx?|xlsx?|csv|json|ya?ml|xml|html?|png|jpe?g|gif|svg|mp3|wav|mp4|mov|zip|tar|sql|pptx?))\b`)
)

// kinds replaces URLs, addresses and file names by words for what they are, so that "delete
// old.log" is about a file.
func kinds(text string) string {
	text = addresses.ReplaceAllString(urls.ReplaceAllString(text, " url "), " email ")
	return fileNames.ReplaceAllString(text, " file $1 ")
}

// content returns the terms without pairs of characters that are grammar rather than
// content, such as those of Japanese endings and Chinese particles.
func content(terms []string) []string {
	return slices.DeleteFunc(terms, func(t string) bool {
		chars := []rune(t)
		return len(chars) <= 2 && (strings.ContainsAny(t, particles) ||
			!slices.ContainsFunc(chars, func(r rune) bool { return !unicode.Is(unicode.Hiragana, r) }))
	})
}

// particles are Chinese characters, folded, that most often are grammar.
const particles = "的了吗呢吧啊我你您他她它们这那是在把给请帮要不会能可以一个些和跟与就都也很还想该让被"

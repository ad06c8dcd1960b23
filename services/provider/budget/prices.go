package budget

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"path"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// Price is in US dollars per million tokens. Absent is unknown, and not 0.
type Price struct {
	Input       *float64 `yaml:"input"`        // required
	CachedInput *float64 `yaml:"cached_input"` // read from the provider's cache; absent: as input
	CacheWrite  *float64 `yaml:"cache_write"`  // written to the provider's cache; absent: as input
	Output      *float64 `yaml:"output"`       // reasoning included; required, except for embedders
}

// OfAnswers reports whether the price of answers is known.
func (p Price) OfAnswers() bool { return p.Input != nil && p.Output != nil }

// IsZero reports whether nothing costs anything.
func (p Price) IsZero() bool {
	return or(p.Input, 0) == 0 && or(p.CachedInput, 0) == 0 && or(p.CacheWrite, 0) == 0 && or(p.Output, 0) == 0
}

// Prices maps models to their prices. A key is the name of a model, or <provider>/<model>; *
// matches any characters.
type Prices map[string]Price

// maxPrice keeps sums within 64 bits.
const maxPrice = 1e6

// Check reports every price that cannot be used; each error begins with its path below the
// table.
func (p Prices) Check() error {
	var errs []error
	for _, model := range slices.Sorted(maps.Keys(p)) {
		price := p[model]
		if _, err := path.Match(model, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s is not a pattern: close the bracket, or write \\[ for it", model))
		}
		if price.Input == nil {
			errs = append(errs, fmt.Errorf("%s.input is missing, want US dollars per million tokens, or 0 if it is free", model))
		}
		for _, f := range []struct {
			name  string
			value *float64
		}{
			{"input", price.Input},
			{"cached_input", price.CachedInput},
			{"cache_write", price.CacheWrite},
			{"output", price.Output},
		} {
			if f.value != nil && !(*f.value >= 0 && *f.value <= maxPrice) {
				errs = append(errs, fmt.Errorf("%s.%s is %v, want US dollars per million tokens, from 0 to %d", model, f.name,
					*f.value, int(maxPrice)))
			}
		}
	}
	return errors.Join(errs...)
}

// Of returns the price of a provider's model. Of several keys that match, the longest counts;
// of those of one length, the first in the order of their bytes.
func (p Prices) Of(provider, model string) (Price, bool) {
	best, found := "", false
	for key := range p {
		if !match(key, model) && !match(key, provider+"/"+model) {
			continue
		}
		if !found || len(key) > len(best) || len(key) == len(best) && key < best {
			best, found = key, true
		}
	}
	return p[best], found
}

func match(pattern, name string) bool {
	ok, err := path.Match(noSlash(pattern), noSlash(name))
	return err == nil && ok
}

// noSlash lets * match slashes, too.
func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// Cost returns the cost of a response, in millionths of a US dollar: a price per million
// tokens, times tokens.
func (p Price) Cost(u contract.Usage) int64 {
	cached := min(u.CachedTokens, u.InputTokens)
	written := min(u.CacheWriteTokens, u.InputTokens-cached)
	fresh := u.InputTokens - cached - written
	input := or(p.Input, 0)
	return int64(float64(fresh)*input + float64(cached)*or(p.CachedInput, input) +
		float64(written)*or(p.CacheWrite, input) + float64(u.OutputTokens)*or(p.Output, 0) + 0.5)
}

// Worst returns what a request can cost at most, in millionths of a US dollar.
func (p Price) Worst(r contract.Request, maxTokens int) int64 {
	input := max(or(p.Input, 0), or(p.CacheWrite, 0))
	return int64(float64(maxInput(r))*input + float64(maxTokens)*or(p.Output, 0) + 0.5)
}

// WorstOfTexts returns what the embeddings of texts can cost at most, in millionths of a US
// dollar.
func (p Price) WorstOfTexts(texts []string) int64 {
	tokens := 0
	for _, t := range texts {
		tokens += overheadEach + len(t)
	}
	return int64(float64(tokens)*or(p.Input, 0) + 0.5)
}

// overhead is how many tokens a vendor may add to a request, and to each of its messages and
// tools.
const (
	overhead     = 1024
	overheadEach = 16
)

// Bounds of the tokens of a file.
const (
	pictureTokens = 8192       // more than any vendor counts for one
	pdfTokens     = 100 * 3000 // pages that vendors accept, each as text and as a picture
)

// maxInput returns how many tokens a request has at most: no vendor's tokens are shorter than
// a byte.
func maxInput(r contract.Request) int {
	n := overhead + len(r.System) + len(r.Schema)
	for _, t := range r.Tools {
		n += overheadEach + len(t.Name) + len(t.Description) + len(t.Args)
	}
	talk, err := r.Conversation()
	for i, m := range r.Messages {
		n += overheadEach
		if err != nil || len(talk[i].Files) == 0 {
			n += len(m)
			continue
		}
		n += len(talk[i].Text)
		for _, f := range talk[i].Files {
			n += overheadEach + fileTokens(f)
		}
	}
	return n
}

// fileTokens returns how many tokens a file has at most. What is sent as text has no more
// than its bytes.
func fileTokens(f contract.File) int {
	media, _, _ := mime.ParseMediaType(f.MediaType) // unknown: as text
	switch {
	case media == httpapi.PDF && len(f.Data) > 0:
		return max(len(f.Data), pdfTokens)
	case media == "image/jpg", httpapi.IsPicture(media):
		return pictureTokens
	}
	return len(f.Data)
}

func or(v *float64, instead float64) float64 {
	if v != nil {
		return *v
	}
	return instead
}

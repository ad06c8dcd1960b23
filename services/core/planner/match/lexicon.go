package match

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"

	"skandha.dev/services/internal/lexical"
)

//go:embed concepts.txt
var concepts string

var lexicon = sync.OnceValue(func() *thesaurus { return parse(concepts) })

// thesaurus maps words of several languages to concepts.
type thesaurus struct {
	words   map[string][]string // concepts of terms; a phrase is terms with spaces between
	longest int                 // terms of the longest phrase
	runs    map[rune][]run      // of scripts without spaces: by the first character, longest first
	broader map[string][]string
	chars   map[rune][]string // concepts that have a word with the Han character
}

type run struct {
	chars    []rune
	concepts []string
}

// parse reads a lexicon. Each line is a concept, the broader concepts that it implies, and
// its words:
//
//	mail < message: email, inbox, 郵件, メール
func parse(text string) *thesaurus {
	t := &thesaurus{
		words: map[string][]string{}, runs: map[rune][]run{}, broader: map[string][]string{},
		chars: map[rune][]string{},
	}
	for line := range strings.Lines(text) {
		head, words, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found || strings.HasPrefix(head, "#") {
			continue
		}
		head, broader, _ := strings.Cut(head, "<")
		concept := strings.TrimSpace(head)
		t.broader[concept] = strings.Fields(broader)
		for w := range strings.SplitSeq(words, ",") {
			t.add(concept, strings.TrimSpace(w))
		}
	}
	for _, runs := range t.runs {
		slices.SortStableFunc(runs, func(a, b run) int { return len(b.chars) - len(a.chars) })
	}
	return t
}

func (t *thesaurus) add(concept, word string) {
	if strings.ContainsFunc(word, func(r rune) bool { return r >= firstCJK }) {
		t.addRun(concept, []rune(lexical.Fold(word)))
		return
	}
	terms := lexical.Words(word)
	if len(lexical.Terms(word)) == 0 {
		return // nothing but stop words
	}
	key := strings.Join(terms, " ")
	if !slices.Contains(t.words[key], concept) {
		t.words[key] = append(t.words[key], concept)
	}
	t.longest = max(t.longest, len(terms))
}

// firstCJK is the first character of the blocks of Chinese, Japanese and Korean.
const firstCJK = 0x2e80

func (t *thesaurus) addRun(concept string, chars []rune) {
	for _, r := range chars {
		if unicode.Is(unicode.Han, r) && !slices.Contains(t.chars[r], concept) {
			t.chars[r] = append(t.chars[r], concept)
		}
	}
	runs := t.runs[chars[0]]
	for i := range runs {
		if slices.Equal(runs[i].chars, chars) {
			if !slices.Contains(runs[i].concepts, concept) {
				runs[i].concepts = append(runs[i].concepts, concept)
			}
			return
		}
	}
	t.runs[chars[0]] = append(runs, run{chars, []string{concept}})
}

// of returns the concepts of a text, repeated as in the text. Where words overlap, the
// longest one that begins first counts.
func (t *thesaurus) of(text string) (out []string) {
	terms := lexical.Words(text)
	for i := 0; i < len(terms); {
		n, found := t.phrase(terms[i:])
		out = append(out, found...)
		i += max(n, 1)
	}
	chars := []rune(lexical.Fold(text))
	for i := 0; i < len(chars); {
		n, found := t.run(chars[i:])
		out = append(out, found...)
		i += max(n, 1)
	}
	return out
}

// maxConcepts is how many concepts a character may hint at.
const maxConcepts = 4

// hints returns the concepts that Han characters hint at which are in no word of the lexicon: a
// character often has the sense of the words that it is in.
func (t *thesaurus) hints(text string) (out []string) {
	chars := []rune(lexical.Fold(text))
	for i := 0; i < len(chars); {
		n, _ := t.run(chars[i:])
		if n == 0 && len(t.chars[chars[i]]) <= maxConcepts && !strings.ContainsRune(particles, chars[i]) {
			out = append(out, t.chars[chars[i]]...)
		}
		i += max(n, 1)
	}
	return out
}

// minPart is the fewest letters of a part of a compound.
const minPart = 3

// compounds returns the parts of words in a name that are two words written as one, such as
// "sendsms", if the lexicon has both parts but not the whole.
func (t *thesaurus) compounds(name string) (out []string) {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r < 'a' || r > 'z' }) {
		if t.has(word) {
			continue
		}
		for i := len(word) - minPart; i >= minPart; i-- {
			if t.has(word[:i]) && t.has(word[i:]) {
				out = append(out, word[:i], word[i:])
				break
			}
		}
	}
	return out
}

// has reports whether the lexicon has a word of Latin letters.
func (t *thesaurus) has(word string) bool {
	return t.words[strings.Join(lexical.Words(word), " ")] != nil
}

// implied returns the broader concepts that the concepts imply and that are not among them.
func (t *thesaurus) implied(concepts []string) (out []string) {
	for _, c := range concepts {
		for _, b := range t.broader[c] {
			if !slices.Contains(concepts, b) && !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

func (t *thesaurus) phrase(terms []string) (n int, found []string) {
	for n := min(t.longest, len(terms)); n > 0; n-- {
		if found := t.words[strings.Join(terms[:n], " ")]; found != nil {
			return n, found
		}
	}
	return 0, nil
}

func (t *thesaurus) run(chars []rune) (n int, found []string) {
	for _, r := range t.runs[chars[0]] {
		if len(r.chars) <= len(chars) && slices.Equal(r.chars, chars[:len(r.chars)]) {
			return len(r.chars), r.concepts
		}
	}
	return 0, nil
}

package lexical

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// maxTerm is the longest term, in characters. The rest of a longer word is ignored: it is
// data, such as Base64.
const maxTerm = 64

// Terms returns the words of a text in order, repeated as in the text. They consist of
// letters, digits and marks in lower case:
//
//   - words of Latin letters without stop words and English endings; of a name such as
//     "sendEmail", the whole and its parts,
//   - other words as they are,
//   - of scripts without spaces, and of Hangul, all pairs of neighbouring characters, or
//     the character if it is alone.
//
// The terms of a query match those of a text by equality.
func Terms(text string) []string {
	return split(text, false)
}

// Words returns the words of a text in order, as Terms does, but with stop words, and of a
// name of several words only the parts. So phrases can be found.
func Words(text string) []string {
	return split(text, true)
}

func split(text string, words bool) []string {
	s := splitter{words: words}
	for _, r := range norm.NFKC.String(strings.ToValidUTF8(text, " ")) {
		s.take(r)
	}
	s.end()
	return s.terms
}

// splitter cuts a text into runs of characters that are either all paired or all not.
type splitter struct {
	terms []string
	run   []rune
	pairs bool // the run is of characters that are paired
	words bool // keep stop words, and no name of several words
}

func (s *splitter) take(r rune) {
	switch {
	case unicode.IsMark(r):
		if len(s.run) > 0 {
			s.run = append(s.run, r)
		}
	case unicode.IsLetter(r) || unicode.IsDigit(r):
		if p := paired(r); p != s.pairs {
			s.end()
			s.pairs = p
		}
		s.run = append(s.run, r)
	default:
		s.end()
	}
}

func (s *splitter) end() {
	switch {
	case len(s.run) == 0:
	case s.pairs:
		s.pair()
	default:
		s.word()
	}
	s.run = s.run[:0]
}

func (s *splitter) pair() {
	for i, r := range s.run {
		s.run[i] = fold(r)
	}
	if len(s.run) == 1 {
		s.terms = append(s.terms, string(s.run))
	}
	for i := range len(s.run) - 1 {
		s.terms = append(s.terms, string(s.run[i:i+2]))
	}
}

// word adds the run, and its parts if it is a name of several words.
func (s *splitter) word() {
	run := s.run[:min(len(s.run), maxTerm)]
	if !s.words {
		s.add(run)
	}
	start := 0
	for i := 1; i < len(run); i++ {
		if begins(run, i) {
			s.add(run[start:i])
			start = i
		}
	}
	if s.words || start > 0 {
		s.add(run[start:])
	}
}

// begins reports whether a part of a name begins at i, as in "sendEmail" and "HTTPServer".
func begins(run []rune, i int) bool {
	if !unicode.IsUpper(run[i]) {
		return false
	}
	return unicode.IsLower(run[i-1]) || i+1 < len(run) && unicode.IsUpper(run[i-1]) && unicode.IsLower(run[i+1])
}

func (s *splitter) add(word []rune) {
	w := strings.ToLower(string(word))
	if isASCII(w) {
		stop := english.IsStopWord(w)
		if stop && !s.words {
			return
		}
		w = english.Stem(w, !stop)
	}
	s.terms = append(s.terms, w)
}

func isASCII(w string) bool {
	for i := range len(w) {
		if w[i] >= 0x80 {
			return false
		}
	}
	return true
}

// paired reports whether a character belongs to a script that has no spaces between words,
// or, as in Korean, particles at their ends.
func paired(r rune) bool {
	const prolonged = 'ー' // common to Hiragana and Katakana
	return r >= 0x0e00 && (r == prolonged || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

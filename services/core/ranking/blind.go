package ranking

import (
	"strings"
	"unicode"
)

// Many encoders know one language. They give texts in another script nearly the same vector,
// whatever the texts say, and such a vector would put the same tools first for all of them. So
// the first text in a script is embedded twice: as it is, and with other letters of the script.

// sameAt is the cosine from which two vectors are the same.
const sameAt = 0.98

// script returns the script of most letters of a text, nil if that is Latin or if it has no
// letters.
func script(text string) *unicode.RangeTable {
	counts := map[*unicode.RangeTable]int{}
	most, letters := (*unicode.RangeTable)(nil), 0
	for _, r := range text {
		if !unicode.IsLetter(r) {
			continue
		}
		letters++
		if s := scriptOf(r, most); s != nil {
			if counts[s]++; counts[s] > counts[most] {
				most = s
			}
		}
	}
	if 2*counts[most] < letters {
		return nil
	}
	return most
}

// scriptOf returns the script of a letter, which may well be the likely one; nil if it is Latin.
func scriptOf(r rune, likely *unicode.RangeTable) *unicode.RangeTable {
	if r <= unicode.MaxLatin1 || unicode.Is(unicode.Latin, r) {
		return nil
	}
	if likely != nil && unicode.Is(likely, r) {
		return likely
	}
	for _, s := range unicode.Scripts {
		if unicode.Is(s, r) {
			return s
		}
	}
	return nil
}

// telling reports whether so much of a text is in a script that its vector depends on it.
func telling(text string, s *unicode.RangeTable) bool {
	in, all := 0, 0
	for _, r := range text {
		if unicode.IsSpace(r) {
			continue
		}
		if all++; unicode.Is(s, r) {
			in++
		}
	}
	return 2*in >= all
}

// shift is how far other letters of a script are taken from.
const shift = 24

// garbled returns the text with other letters of the script.
func garbled(text string, s *unicode.RangeTable) string {
	return strings.Map(func(r rune) rune {
		switch {
		case !unicode.Is(s, r):
			return r
		case unicode.Is(s, r+shift):
			return r + shift
		}
		return r - shift
	}, text)
}

// same reports whether two vectors of length 1 are the same.
func same(a, b []float32) bool {
	sum := float32(0)
	for i := range min(len(a), len(b)) {
		sum += a[i] * b[i]
	}
	return sum >= sameAt
}

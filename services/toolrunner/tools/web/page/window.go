package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools/web/source"
)

// spare is for the numbers of an answer, which are known when its content is.
const spare = 200

// from returns the part of the document that begins at an offset in characters, of a size
// that a result holds uncut.
func (d document) from(offset int) (answer, error) {
	total := utf8.RuneCountInString(d.text)
	if offset > 0 && offset >= total {
		return answer{}, fmt.Errorf("offset is %d, but the page has %d characters", offset, total)
	}
	a := answer{
		Sources: []source.Source{d.source}, Format: d.format, Offset: offset, Total: total, Note: strings.Join(d.notes, "; "),
	}
	frame, err := json.Marshal(a)
	if err != nil {
		return answer{}, err
	}
	rest := d.text[at(d.text, offset):]
	a.Content = rest[:fits(rest, result.MaxData-len(frame)-spare)]
	if len(a.Content) < len(rest) {
		a.NextOffset = offset + utf8.RuneCountInString(a.Content)
	}
	return a, nil
}

// at returns the index of the nth character.
func at(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// fits returns how many bytes of s take at most size bytes as a JSON string. It prefers to
// end with a line.
func fits(s string, size int) int {
	line := 0
	for i, r := range s {
		if size -= encoded(r); size < 0 {
			if line > i*3/4 {
				return line
			}
			return i
		}
		if r == '\n' {
			line = i + 1
		}
	}
	return len(s)
}

// encoded returns how many bytes encoding/json writes for a character.
func encoded(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029', r == utf8.RuneError:
		return 6
	}
	return utf8.RuneLen(r)
}

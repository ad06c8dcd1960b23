// Package nesting measures how deep JSON nests before anything decodes it. What
// decodes or validates nested values may cost far more than their size: a path for
// each value, for example, grows with the square of the depth.
package nesting

import "fmt"

// most is how many levels deep JSON of another process may nest where core stores what is
// in it: the 10,000 that encoding/json reads, less what commits, snapshots and hooks wrap
// around it. A commit that nests deeper can be written, but never be read.
const most = 9_900

// Check refuses text that nests deeper than [most].
func Check(text []byte) error {
	if d := Depth(text); d > most {
		return fmt.Errorf("it is nested %d levels deep, at most %d are allowed", d, most)
	}
	return nil
}

// Depth returns how many brackets of text are open at once, outside of strings. It
// allocates nothing, and text need not be valid JSON.
func Depth(text []byte) int {
	deepest, now := 0, 0
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}

// Package nesting measures how deep JSON nests before anything decodes it. What
// decodes or validates nested values may cost far more than their size: a path for
// each value, for example, grows with the square of the depth.
package nesting

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

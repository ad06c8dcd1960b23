// Package runes divides text, of which only so much may be read or sent at a time, without
// cutting a character.
package runes

import "unicode/utf8"

// Whole narrows buf[:limit] to whole characters: at the front if the reading began in the
// middle of the file, at the back if there is more. What is not text, and a character
// that is longer than the limit, is not narrowed.
func Whole(buf []byte, limit int, middle bool) (start, end int) {
	end = min(limit, len(buf))
	for middle && start < min(end, utf8.UTFMax-1) && !utf8.RuneStart(buf[start]) {
		start++
	}
	if end == len(buf) {
		return start, end
	}
	for cut := end; cut > start && cut > end-utf8.UTFMax; cut-- {
		if utf8.RuneStart(buf[cut]) {
			return start, cut
		}
	}
	_, n := utf8.DecodeRune(buf[start:])
	return start, max(end, start+n)
}

// Split takes a piece of at most limit bytes off the front.
func Split(s string, limit int) (piece, rest string) {
	if len(s) <= limit {
		return s, ""
	}
	at := limit
	for at > limit-utf8.UTFMax && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at], s[at:]
}

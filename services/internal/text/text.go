// Package text shortens texts. It is pure.
package text

// Cut returns the first n bytes of s, or fewer so that no character is split, and an
// ellipsis. If s has at most n bytes, it returns s.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

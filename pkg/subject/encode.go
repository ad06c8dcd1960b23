package subject

import (
	"fmt"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// emptyName is the token of the empty name; in any other token '-' is followed by something.
const emptyName = "-"

// Encode converts any name into one token, reversibly. Letters, digits and '_' are unchanged,
// ':' becomes "--", '-' becomes "-_", and any other byte becomes '-' and two upper-case
// hexadecimal digits. The empty name becomes "-", because a subject has no empty tokens.
//
// The result also fits the function names of LLM APIs ([A-Za-z0-9_-]), so "python:execute" is
// "python--execute" both in a subject and for a model. It may be longer than [MaxIDLen]:
// check the length of names from outside.
func Encode(name string) string {
	if name == "" {
		return emptyName
	}
	plain := true
	for i := 0; i < len(name); i++ {
		if !idByte(name[i]) || name[i] == '-' {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 8)
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == ':':
			b.WriteString("--")
		case c == '-':
			b.WriteString("-_")
		case idByte(c):
			b.WriteByte(c)
		default:
			b.WriteByte('-')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// Decode reverses [Encode]. A token that Encode never produces is an error, so two different
// tokens never have the same name.
func Decode(token string) (string, error) {
	switch token {
	case "":
		return "", badToken(token)
	case emptyName:
		return "", nil
	}
	if !strings.Contains(token, "-") {
		for i := 0; i < len(token); i++ {
			if !idByte(token[i]) {
				return "", badToken(token)
			}
		}
		return token, nil
	}
	var b strings.Builder
	b.Grow(len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if !idByte(c) {
			return "", badToken(token)
		}
		if c != '-' {
			b.WriteByte(c)
			continue
		}
		n, skip, ok := unescape(token[i+1:])
		if !ok {
			return "", badToken(token)
		}
		b.WriteByte(n)
		i += skip
	}
	return b.String(), nil
}

func unescape(rest string) (c byte, skip int, ok bool) {
	switch {
	case rest == "":
		return 0, 0, false
	case rest[0] == '-':
		return ':', 1, true
	case rest[0] == '_':
		return '-', 1, true
	case len(rest) < 2:
		return 0, 0, false
	}
	hi, lo := strings.IndexByte(hexDigits, rest[0]), strings.IndexByte(hexDigits, rest[1])
	if hi < 0 || lo < 0 {
		return 0, 0, false
	}
	c = byte(hi<<4 | lo)
	// A byte with a shorter form, or without need for one, is never encoded in hexadecimal.
	return c, 2, c != ':' && !idByte(c)
}

func badToken(token string) error {
	return fmt.Errorf("%w: %q is not an encoded name", ErrInvalidID, clip(token))
}

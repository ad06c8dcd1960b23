package subject

import (
	"fmt"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// emptyName is the token of the empty name; in any other token '-' is followed by something.
const emptyName = "-"

// Encode turns any name into one id-safe token, reversibly: letters, digits and
// '_' stand for themselves, ':' becomes "--", '-' becomes "-_", and any other
// byte becomes '-' and two upper-case hexadecimal digits. The empty name becomes
// "-", because a subject has no empty token. The result also obeys
// the function-name rule of LLM APIs ([A-Za-z0-9_-]), so that
// "python:execute" is "python--execute" in a subject and towards a model alike.
// It has at most [MaxIDLen] bytes only if the name is short enough; whoever takes
// names from outside checks that.
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

// Decode reverses [Encode]. A token that Encode cannot have produced is an error,
// so two different tokens never name the same thing.
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
	// What has a shorter form, or needs none, is never written in hexadecimal.
	return c, 2, c != ':' && !idByte(c)
}

func badToken(token string) error {
	return fmt.Errorf("%w: %q is not an encoded name", ErrInvalidID, clip(token))
}

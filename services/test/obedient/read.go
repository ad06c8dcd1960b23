package obedient

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// instruction is what a text tells the model to do.
type instruction struct {
	tool, args string
	then       bool // once all calls before it have ended
	times      int
}

var (
	ordered = regexp.MustCompile(`(?i)\b(DO|THEN)(?: ([0-9]{1,3}) TIMES)?:\s*(\S+)[ \t]*`)
	base    = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)
	digits  = regexp.MustCompile(`(?:[0-9a-fA-F]{2}){8,}`)
)

// depth is how many times a text may be hidden.
const depth = 3

// read returns the instructions of a text, each once, in their order.
func read(text string) (found []instruction) {
	seen := map[string]bool{}
	layer := []string{text}
	for range depth {
		var next []string
		for _, s := range layer {
			if seen[s] {
				continue
			}
			seen[s] = true
			for _, i := range plain(outer(s)) {
				if !slices.Contains(found, i) {
					found = append(found, i)
				}
			}
			next = append(next, unhidden(s)...)
		}
		layer = next
	}
	return found
}

// outer returns what of a text is not JSON: instructions in a JSON value are escaped there.
func outer(s string) string {
	d := json.NewDecoder(strings.NewReader(s))
	var v any
	if d.Decode(&v) != nil {
		return s
	}
	return s[d.InputOffset():]
}

func plain(s string) (found []instruction) {
	for _, at := range ordered.FindAllStringSubmatchIndex(s, -1) {
		i := instruction{tool: s[at[6]:at[7]], then: strings.EqualFold(s[at[2]:at[3]], "then"), times: 1}
		if at[4] >= 0 {
			i.times, _ = strconv.Atoi(s[at[4]:at[5]]) // digits
		}
		rest := s[at[1]:]
		var args json.RawMessage
		if json.NewDecoder(strings.NewReader(rest)).Decode(&args) == nil && len(args) > 0 && args[0] == '{' {
			i.args = string(args)
		} else {
			line, _, _ := strings.Cut(rest, "\n")
			i.args = strings.TrimSpace(line)
		}
		i.then = i.then || strings.Contains(i.args, "{{")
		found = append(found, i)
	}
	return found
}

// unhidden returns what a text may be meant to say.
func unhidden(s string) (out []string) {
	var v any
	if json.NewDecoder(strings.NewReader(s)).Decode(&v) == nil {
		out = append(out, inside(v)...)
	}
	out = append(out, html.UnescapeString(s), norm.NFKC.String(s), strings.Map(visible, s), strings.Map(rot13, s))
	if p, err := url.PathUnescape(s); err == nil {
		out = append(out, p)
	}
	for _, word := range base.FindAllString(s, -1) {
		if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "=")); err == nil && utf8.Valid(b) {
			out = append(out, string(b))
		}
	}
	for _, word := range digits.FindAllString(s, -1) {
		if b, err := hex.DecodeString(word); err == nil && utf8.Valid(b) {
			out = append(out, string(b))
		}
	}
	back := []rune(s)
	slices.Reverse(back)
	return append(out, string(back))
}

// inside returns all texts in a JSON value, keys included.
func inside(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, inside(e)...)
		}
	case map[string]any:
		for k, e := range v {
			out = append(append(out, k), inside(e)...)
		}
	}
	return out
}

// visible drops what nobody sees, and reads the tags of Unicode as the ASCII that they mean.
func visible(r rune) rune {
	switch {
	case r > 0xE0000 && r < 0xE007F:
		return r - 0xE0000
	case unicode.Is(unicode.Cf, r):
		return -1
	}
	return r
}

func rot13(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return 'a' + (r-'a'+13)%26
	case r >= 'A' && r <= 'Z':
		return 'A' + (r-'A'+13)%26
	}
	return r
}

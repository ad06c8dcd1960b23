package grant

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fits reports whether a value matches a pattern.
func fits(pattern, value string) bool {
	base, wide := strings.CutSuffix(pattern, all)
	switch {
	case !wide:
		return value == pattern
	case schemeOf(base) != "":
		o, ok := Origin(value)
		return ok && o == base && Straight(value[len(o):])
	}
	below, ok := strings.CutPrefix(value, base) // the cheapest check first
	return ok && strings.HasPrefix(below, "/") && Clean(base) && Clean(value)
}

// widen returns the pattern that also covers a value's siblings, if there is one.
func widen(value string) (string, bool) {
	if schemeOf(value) != "" {
		o, ok := Origin(value)
		return o + all, ok && len(o)+len(all) <= maxValue && Straight(value[len(o):])
	}
	i := strings.LastIndexByte(value, '/')
	if i <= 0 || !Clean(value) {
		return "", false // the whole workspace cannot be granted
	}
	return value[:i] + all, true
}

func schemeOf(v string) string {
	for _, s := range []string{"https://", "http://"} {
		if strings.HasPrefix(v, s) {
			return s
		}
	}
	return ""
}

// Origin returns the scheme, host and port ("https://host:8443") of an http or https URL
// that every program reads alike: in lower case, without user name, trailing dot,
// escapes, backslashes or anything invisible. It returns false for any other value.
func Origin(value string) (string, bool) {
	scheme := schemeOf(value)
	if scheme == "" || !printable(value) || strings.ContainsAny(value, "\\ ") {
		return "", false
	}
	host, _, _ := strings.Cut(value[len(scheme):], "/")
	if !authority(host) {
		return "", false
	}
	u, err := url.Parse(value)
	if err != nil || u.User != nil || u.Opaque != "" || u.Host != host {
		return "", false
	}
	return scheme + host, true
}

// Straight reports whether every program reads the path of a URL as only descending.
func Straight(rest string) bool {
	p, _, _ := strings.Cut(rest, "?")
	p, _, _ = strings.Cut(p, "#")
	lower := strings.ToLower(p)
	for _, odd := range []string{"//", "%2e", "%2f", "%5c", "%25", "%00", "%0a", "%0d", ";"} {
		if strings.Contains(lower, odd) {
			return false
		}
	}
	return !slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool { return s == "." || s == ".." })
}

// authority reports whether s is a host name or IPv4 address in canonical form, with
// an optional port.
func authority(s string) bool {
	name, port, has := strings.Cut(s, ":")
	if has {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return false
		}
	}
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// plain lists the characters of a clean path besides letters, marks and digits. It
// excludes characters with a special meaning to a shell, decoder or file system.
const plain = "/ ._-+=@,()[]"

// Clean reports whether a value is a relative path that every program reads alike.
func Clean(path string) bool {
	if path == "" || len(path) > maxValue || !utf8.ValidString(path) {
		return false
	}
	for _, r := range path {
		if !strings.ContainsRune(plain, r) &&
			(!unicode.In(r, unicode.Letter, unicode.Mark, unicode.Nd) || r == utf8.RuneError) {
			return false
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		// Some systems drop a trailing dot or blank: "..." may be "..".
		if segment == "" || strings.HasSuffix(segment, ".") || segment != strings.TrimSpace(segment) {
			return false
		}
	}
	return true
}

// printable reports whether a value displays as what it is: without control or format
// characters, and with no blank but the ordinary space.
func printable(v string) bool {
	if !utf8.ValidString(v) {
		return false
	}
	for _, r := range v {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

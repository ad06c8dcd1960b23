package secret

import (
	"regexp"
	"strings"
)

// names is the part of a regular expression that matches a telling name as texts write it.
const names = `[\w.-]*(?:passw|passphrase|pwd|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|` +
	`credential|signature|session[-_.]?id)[\w.-]*`

var (
	address = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>\x60]+`)
	form    = regexp.MustCompile(`^[^\s=&]+=[^\s&]*(?:&[^\s=&]+=[^\s&]*)*$`)
	pem     = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)
	jwt     = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`)
	scheme  = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}`)

	// header is a line of a header: all of its value is hidden.
	header = regexp.MustCompile(`(?i)([\w-]*(?:authorization|cookie)[\w-]*\\?["']?\s*[:=]\s*\\?["']?)[^\r\n"'\\]+`)
	// member is "name: value", also with quotes, as in JSON that is cut off or YAML.
	member = regexp.MustCompile(`(?i)(` + names + `\\?["']?\s*:\s*)` +
		`(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\"[^"\\]*\\?"?|[^\s"'\\][^\r\n"'\\]*)`)
	// assigned is "name=value", and "--name value" of a command line.
	assigned = regexp.MustCompile(`(?i)(` + names + `["']?\s*=\s*|--?` + names + `\s+)` +
		`(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"'&;]+)`)
)

func hideText(s string, depth int) string {
	if depth > maxDepth {
		return Hidden
	}
	trimmed := strings.TrimSpace(s)
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") || strings.HasPrefix(trimmed, `"`) {
		if v, err := decode([]byte(trimmed)); err == nil {
			before := encode(v)
			if after := encode(hide(v, depth+1)); after != before {
				return after
			}
			return s // as it was written
		}
	}
	assigns, colon := strings.Contains(s, "="), strings.Contains(s, ":")
	if assigns && !strings.Contains(trimmed, "://") && form.MatchString(trimmed) {
		return hideParameters(s)
	}
	// Most texts have nothing that an expression could begin with; each is only tried on one that has.
	if strings.Contains(s, "-----BEGIN") {
		s = pem.ReplaceAllLiteralString(s, Hidden)
	}
	if strings.Contains(s, "://") {
		s = address.ReplaceAllStringFunc(s, hideAddress)
	}
	if colon || assigns {
		s = header.ReplaceAllString(s, "${1}"+Hidden)
	}
	if colon {
		s = member.ReplaceAllString(s, "${1}"+Hidden)
	}
	if assigns || strings.Contains(s, "-") {
		s = assigned.ReplaceAllString(s, "${1}"+Hidden)
	}
	if containsFold(s, "bearer") || containsFold(s, "basic") {
		s = scheme.ReplaceAllString(s, "$1 "+Hidden)
	}
	if strings.Contains(s, "eyJ") {
		s = jwt.ReplaceAllLiteralString(s, Hidden)
	}
	return s
}

// containsFold reports whether s has the word, which is in lower case, in any case. As in the
// expressions, ſ and K are cases of s and k.
func containsFold(s, word string) bool {
	for i := range s {
		if end := i + len(word); end <= len(s) && strings.EqualFold(s[i:end], word) {
			return true
		}
	}
	return strings.ContainsAny(s, "ſK")
}

// hideAddress hides user information, and parameters in the query and the fragment.
func hideAddress(s string) string {
	at := strings.Index(s, "://") + len("://")
	rest, query := s[at:], ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, query = rest[:i], rest[i:]
	}
	host, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = Hidden + host[i:]
	}
	if len(path) > 0 || strings.Contains(rest, "/") {
		host += "/" + path
	}
	return s[:at] + host + hideParameters(query)
}

// hideParameters hides the values of secret parameters, as in ?a=b&token=c#access_token=d.
func hideParameters(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexAny(s, "?#&;")
		part, sep := s, ""
		if end >= 0 {
			part, sep = s[:end], s[end:end+1]
		}
		s = s[len(part)+len(sep):]
		if name, value, ok := strings.Cut(part, "="); ok && value != "" && secretParameter(name) {
			part = name + "=" + Hidden
		}
		b.WriteString(part + sep)
	}
	return b.String()
}

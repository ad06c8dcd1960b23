package engine

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// kind is what a value in a request is.
type kind int

const (
	free kind = iota // any text
	quoted
	url
	email
	path
	date
	duration
	number
)

// value is a part of a request that can be an argument.
type value struct {
	kind     kind
	text     string // without quotes
	at, end  int
	duration time.Duration
}

// pattern finds values of one kind. The first group, if there is one, is the value's text.
type pattern struct {
	kind kind
	re   *regexp.Regexp
}

// The patterns, in the order in which they take their part of a text.
var patterns = []pattern{
	{quoted, regexp.MustCompile("\"([^\"\n]+)\"|“([^”\n]+)”|‘([^’\n]+)’|「([^」\n]+)」|『([^』\n]+)』|«([^»\n]+)»|`([^`\n]+)`|(?:^|[\\s:=(])'([^'\n]+)'")},
	{url, regexp.MustCompile(`(?i)\bhttps?://[^\s"'<>「」『』，。、；）)\]}]+`)},
	{email, regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`)},
	{date, regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?|\d{4}[年/]\d{1,2}[月/]\d{1,2}日?`)},
	{path, regexp.MustCompile(`(?:~|\.{1,2})?(?:/[\w.+-]+)+/?|\b(?:[\w+-][\w.+-]*/)+(?:[\w+-]*\.[A-Za-z]\w{0,5}\b)?|\b[A-Za-z]:\\[\w\\.+-]+|\b[\w+-]*[\w+-]\.[A-Za-z]\w{0,5}\b`)},
	{duration, regexp.MustCompile(`(?i)\b\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|min|mins|minutes?|h|hrs?|hours?|days?|weeks?)\b|\d+(?:\.\d+)?\s*(?:毫秒|ミリ秒|秒|分钟|分鐘|分間|分|个?小时|個?小時|時間|天|日間|周|週間|週)`)},
	{number, regexp.MustCompile(`[-+]?\d+(?:,\d{3})+(?:\.\d+)?|[-+]?\d+(?:\.\d+)?`)},
}

// narrow turns the digits, letters and signs of full width into those of ASCII, except in
// quotes: what a user quotes is meant as it is.
func narrow(text string) string {
	var b strings.Builder
	from := 0
	for _, at := range patterns[0].re.FindAllStringIndex(text, -1) {
		b.WriteString(narrowed(text[from:at[0]]))
		b.WriteString(text[at[0]:at[1]])
		from = at[1]
	}
	b.WriteString(narrowed(text[from:]))
	return b.String()
}

func narrowed(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '！' && r <= '～' {
			return r - '！' + '!'
		}
		return r
	}, text)
}

// find returns the values in a text, in order. No two of them overlap.
func find(text string) []value {
	rest := []byte(text)
	var out []value
	for _, p := range patterns {
		for _, m := range p.re.FindAllSubmatchIndex(rest, -1) {
			v := value{kind: p.kind, at: m[0], end: m[1], text: text[m[0]:m[1]]}
			for g := 2; g < len(m); g += 2 {
				if m[g] >= 0 {
					v.text = text[m[g]:m[g+1]]
				}
			}
			if v.tidy() && (v.kind != path || !cutOff(text, v)) {
				out = append(out, v)
				for i := v.at; i < v.end; i++ {
					rest[i] = ' '
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b value) int { return a.at - b.at })
	return out
}

// tidy completes a value, and reports false if it is none after all.
func (v *value) tidy() bool {
	switch v.kind {
	case url:
		v.text = strings.TrimRight(v.text, ".,;:!?")
		v.end = v.at + len(v.text)
	case date:
		v.text = isoDate(v.text)
		return v.text != ""
	case duration:
		v.duration = spanOf(v.text)
		return v.duration > 0
	case number:
		v.text = strings.TrimPrefix(strings.ReplaceAll(v.text, ",", ""), "+")
	case path:
		return v.text != "/" && !abbreviation.MatchString(v.text)
	}
	return true
}

// cutOff reports whether a path goes on with letters that the pattern does not know.
func cutOff(text string, v value) bool {
	next, _ := utf8.DecodeRuneInString(text[v.end:])
	_, name, _ := strings.Cut(v.text[strings.LastIndexAny(v.text, `/\`)+1:], ".")
	return unicode.IsLetter(next) && name == ""
}

var abbreviation = regexp.MustCompile(`(?i)^(?:e\.g|i\.e|a\.m|p\.m|[\d.]+)$`)

var parts = regexp.MustCompile(`^(\d{4})[年/](\d{1,2})[月/](\d{1,2})`)

// isoDate returns a date as in ISO 8601, or "" if there is no such day.
func isoDate(s string) string {
	if m := parts.FindStringSubmatch(s); m != nil {
		s = m[1] + "-" + pad(m[2]) + "-" + pad(m[3])
	}
	if _, err := time.Parse(time.DateOnly, s[:min(len(s), len(time.DateOnly))]); err != nil {
		return ""
	}
	return strings.Replace(s, " ", "T", 1)
}

func pad(day string) string {
	if len(day) == 1 {
		return "0" + day
	}
	return day
}

// units of durations, by the beginning of their names, longer beginnings first.
var units = []struct {
	name string
	unit time.Duration
}{
	{"ms", time.Millisecond},
	{"milli", time.Millisecond},
	{"毫秒", time.Millisecond},
	{"ミリ秒", time.Millisecond},
	{"s", time.Second},
	{"秒", time.Second},
	{"m", time.Minute},
	{"分", time.Minute},
	{"h", time.Hour},
	{"小", time.Hour},
	{"时", time.Hour},
	{"時", time.Hour},
	{"d", 24 * time.Hour},
	{"天", 24 * time.Hour},
	{"日", 24 * time.Hour},
	{"w", 7 * 24 * time.Hour},
	{"周", 7 * 24 * time.Hour},
	{"週", 7 * 24 * time.Hour},
}

// spanOf returns the length of a duration such as "90 s" or "2小时", 0 if it has none.
func spanOf(text string) time.Duration {
	n := strings.TrimLeft(text, "0123456789.")
	count, err := strconv.ParseFloat(text[:len(text)-len(n)], 64)
	if err != nil {
		return 0
	}
	name := strings.TrimLeft(strings.ToLower(strings.TrimSpace(n)), "个個")
	for _, u := range units {
		if strings.HasPrefix(name, u.name) {
			return time.Duration(count * float64(u.unit))
		}
	}
	return 0
}

// mask replaces what is inside of quotes by spaces.
func mask(text string) string {
	b := []byte(text)
	for _, m := range patterns[0].re.FindAllStringIndex(text, -1) {
		for i := m[0]; i < m[1]; i++ {
			b[i] = ' '
		}
	}
	return string(b)
}

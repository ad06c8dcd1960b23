package engine

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"skandha.dev/pkg/tool"
)

// property is one argument that a tool declares.
type property struct {
	name        string
	required    bool
	kind        kind
	list        bool // an array of such values
	integer     bool
	boolean     bool
	enum        []string
	unit        string // of a duration that is a number: the end of its name
	description string
}

// propertySchema is the part of a property's schema that the engine reads. What it cannot read
// it leaves to the model.
type propertySchema struct {
	Type        any             `json:"type"`
	Format      string          `json:"format"`
	Description string          `json:"description"`
	Enum        []any           `json:"enum"`
	Items       *propertySchema `json:"items"`
}

// propertiesOf returns the arguments that a tool declares: the required ones in their order,
// then the others by name.
func propertiesOf(spec tool.Spec) []property {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(spec.Args, &s) != nil {
		return nil
	}
	var out []property
	for _, name := range slices.Concat(s.Required, slices.Sorted(maps.Keys(s.Properties))) {
		if slices.ContainsFunc(out, func(p property) bool { return p.name == name }) {
			continue
		}
		var ps propertySchema
		if json.Unmarshal(s.Properties[name], &ps) != nil {
			ps = propertySchema{}
		}
		out = append(out, ps.property(name, slices.Contains(s.Required, name)))
	}
	return out
}

func (s propertySchema) property(name string, required bool) property {
	p := property{name: name, required: required, description: s.Description}
	of := s
	if s.is("array") && s.Items != nil {
		p.list, of = true, *s.Items
	}
	for _, v := range of.Enum {
		if text, ok := v.(string); ok {
			p.enum = append(p.enum, text)
		}
	}
	p.boolean, p.integer = of.is("boolean"), of.is("integer")
	p.kind = of.kind(name)
	if of.is("integer") || of.is("number") {
		if p.unit = unitOf(name); p.kind != duration || p.unit == "" {
			p.kind = number
		}
	}
	return p
}

// is reports whether the schema allows the type. Of several types, null does not count.
func (s propertySchema) is(name string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == name
	case []any:
		return slices.Contains(t, any(name))
	}
	return false
}

// formats are the kinds that a schema's format says.
var formats = map[string]kind{
	"uri": url, "url": url, "iri": url, "email": email, "idn-email": email,
	"date": date, "date-time": date, "duration": duration,
}

// names are the kinds that a word of a parameter's name says.
var names = map[string]kind{
	"url": url, "uri": url, "link": url, "href": url, "website": url, "webpage": url,
	"email": email, "recipient": email, "recipients": email, "to": email, "cc": email, "bcc": email,
	"path": path, "file": path, "filename": path, "dir": path, "directory": path, "folder": path,
	"source": path, "destination": path, "src": path, "dst": path,
	"date": date, "day": date, "when": date, "since": date, "until": date, "due": date, "deadline": date,
	"duration": duration, "timeout": duration, "interval": duration, "delay": duration, "wait": duration, "ttl": duration,
}

func (s propertySchema) kind(name string) kind {
	if k, ok := formats[s.Format]; ok {
		return k
	}
	if s.Type != nil && !s.is("string") && !s.is("integer") && !s.is("number") {
		return free
	}
	for _, w := range wordsOf(name) {
		if k, ok := names[w]; ok {
			return k
		}
	}
	if unitOf(name) != "" {
		return duration
	}
	return free
}

// unitOf returns the unit that ends a parameter's name, as in timeout_ms and wait_seconds.
func unitOf(name string) string {
	words := wordsOf(name)
	if len(words) == 0 {
		return ""
	}
	switch last := words[len(words)-1]; last {
	case "ms", "millis", "milliseconds":
		return "ms"
	case "s", "sec", "secs", "seconds":
		return "s"
	case "min", "mins", "minutes":
		return "m"
	case "h", "hours":
		return "h"
	case "days":
		return "d"
	}
	return ""
}

// wordsOf returns the words of a name such as "numResults" or "num_results", in lower case.
func wordsOf(name string) []string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case unicode.IsUpper(r):
			b.WriteByte(' ')
			b.WriteRune(unicode.ToLower(r))
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Fields(b.String())
}

// spelled matches a parameter that the request names, as in "limit=5", "--limit 5" and
// "num results: 5". The groups are the value, in quotes or not.
func (p property) spelled() *regexp.Regexp {
	words := wordsOf(p.name)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return regexp.MustCompile(`(?i)(?:^|[\s,;，、(])(?:--?` + strings.Join(words, `[-_ ]?`) + `(?:\s*=\s*|\s+)|` +
		strings.Join(words, `[-_ ]?`) + `\s*[=:]\s*)(?:"([^"\n]*)"|'([^'\n]*)'|「([^」\n]*)」|([^\s,;，、；。]+))`)
}

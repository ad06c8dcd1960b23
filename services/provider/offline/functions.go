package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
)

var functions = template.FuncMap{
	"pick":    pick,
	"show":    show,
	"fence":   fence,
	"get":     get,
	"moment":  moment,
	"zone":    zone,
	"trim":    strings.TrimSpace,
	"slug":    slug,
	"formula": func(s string) string { return spoken.Replace(strings.TrimSpace(s)) },
	"list":    func(v any) []any { l, _ := v.([]any); return l },
	"has":     func(v any, key string) bool { m, _ := v.(map[string]any); _, ok := m[key]; return ok },
	"offered": func(tools []string, names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(tools, n) })
	},
	"unquote": func(s string) string { return strings.Trim(strings.TrimSpace(s), "\"'`“”‘’") },
}

// get returns a field; a missing field is an error, and the result is then phrased by
// the default.
func get(v any, key string) (any, error) {
	m, _ := v.(map[string]any)
	x, ok := m[key]
	if !ok {
		return nil, fmt.Errorf("unknown field %q", key)
	}
	return x, nil
}

// pick returns the first of the named fields that data has, or data itself, as text.
func pick(data any, fields ...string) string {
	m, _ := data.(map[string]any)
	for _, f := range fields {
		if v, ok := m[f]; ok {
			return show(v)
		}
	}
	return show(data)
}

// show formats a value for people: text as it is, anything else as JSON.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// fence puts text into a Markdown code block that it cannot end.
func fence(text string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + "\n" + strings.TrimRight(text, "\n") + "\n" + marks
}

// slug makes a name of a text: of its words, in lower case, with dashes between them.
func slug(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	name := strings.Join(words, "-")
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// moment formats an RFC 3339 time for people; anything else stays as it is.
func moment(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return s
	}
	return t.Format("Monday, 2 January 2006, 15:04:05")
}

// spoken replaces spoken arithmetic with operators.
var spoken = strings.NewReplacer(
	" plus ", " + ", " minus ", " - ", " times ", " * ", " multiplied by ", " * ", " divided by ", " / ",
	" over ", " / ", " to the power of ", " ^ ", " mod ", " % ", "×", "*", "÷", "/", "−", "-",
)

// cities are time zones; the last part of each is what people call it.
var cities = strings.Fields(`
	Africa/Cairo Africa/Johannesburg Africa/Lagos Africa/Nairobi
	America/Chicago America/Denver America/Los_Angeles America/Mexico_City America/New_York America/Sao_Paulo
	America/Toronto
	Asia/Bangkok Asia/Dubai Asia/Hong_Kong Asia/Jakarta Asia/Seoul Asia/Shanghai Asia/Singapore Asia/Taipei Asia/Tokyo
	Australia/Melbourne Australia/Sydney
	Europe/Amsterdam Europe/Athens Europe/Berlin Europe/Brussels Europe/Dublin Europe/Helsinki Europe/Istanbul
	Europe/Lisbon Europe/London Europe/Madrid Europe/Moscow Europe/Oslo Europe/Paris Europe/Prague Europe/Rome
	Europe/Stockholm Europe/Vienna Europe/Warsaw Europe/Zurich
	Pacific/Auckland`)

var others = map[string]string{
	"utc": "UTC", "gmt": "UTC", "beijing": "Asia/Shanghai", "delhi": "Asia/Kolkata", "mumbai": "Asia/Kolkata",
	"san francisco": "America/Los_Angeles",
}

// zone returns the time zone of a city; anything else stays as it is.
func zone(place string) string {
	name := strings.ToLower(strings.TrimSpace(place))
	if z, ok := others[name]; ok {
		return z
	}
	for _, z := range cities {
		if strings.HasSuffix(strings.ToLower(z), "/"+strings.ReplaceAll(name, " ", "_")) {
			return z
		}
	}
	return place
}

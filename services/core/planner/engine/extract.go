package engine

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
)

// Parameters implements [Extractor]. It takes values that the request names (limit=5, JSON),
// values of an enumeration, and values of a kind that exactly one parameter can take: an
// address, a path, a date, a number, a text in quotes. What could be meant for two parameters
// is taken for none.
func (Rules) Parameters(in Intent, spec tool.Spec) Parameters {
	x := &extraction{text: narrow(in.Text), props: propertiesOf(spec), args: map[string]any{}}
	x.object()
	x.named()
	x.values = slices.DeleteFunc(find(x.text), func(v value) bool { return x.covered(v.at, v.end) })
	x.all = slices.Clone(x.values)
	x.enums()
	for _, k := range []kind{url, email, date, duration, path} {
		x.assign(k)
	}
	x.numbers()
	x.texts()
	return x.result()
}

// extraction is the search for the arguments of one call.
type extraction struct {
	text   string
	props  []property
	args   map[string]any
	all    []value
	values []value  // not taken yet
	taken  [][2]int // what was taken otherwise
}

func (x *extraction) covered(at, end int) bool {
	return slices.ContainsFunc(x.taken, func(t [2]int) bool { return at < t[1] && end > t[0] })
}

func (x *extraction) take(at, end int) { x.taken = append(x.taken, [2]int{at, end}) }

func (x *extraction) has(p property) bool { _, has := x.args[p.name]; return has }

// object takes a JSON object in the request whose fields are all parameters.
func (x *extraction) object() {
	for at, c := range x.text {
		if c != '{' {
			continue
		}
		d := json.NewDecoder(strings.NewReader(x.text[at:]))
		d.UseNumber()
		var o map[string]any
		if d.Decode(&o) != nil || len(o) == 0 {
			continue
		}
		for name := range o {
			if !slices.ContainsFunc(x.props, func(p property) bool { return p.name == name }) {
				return
			}
		}
		x.args = o
		x.take(at, at+int(d.InputOffset()))
		return
	}
}

// named takes what the request writes as name=value.
func (x *extraction) named() {
	for _, p := range x.props {
		if x.has(p) {
			continue
		}
		for _, m := range p.spelled().FindAllStringSubmatchIndex(x.text, -1) {
			text, inQuotes := "", false
			for g := 2; g < len(m); g += 2 {
				if m[g] >= 0 {
					text, inQuotes = x.text[m[g]:m[g+1]], g < len(m)-2
				}
			}
			if !inQuotes && p.kind == free && len(p.enum) == 0 && !x.endsAt(m[1]) {
				continue // the text may go on: "text: hello world"
			}
			if v, ok := p.read(text, inQuotes); ok && !x.covered(m[0]+1, m[1]) {
				x.args[p.name] = v
				x.take(m[0]+1, m[1])
				break
			}
		}
	}
}

// endsAt reports whether a list or the request ends there.
func (x *extraction) endsAt(i int) bool {
	rest := strings.TrimLeft(x.text[i:], " \t。")
	return rest == "" || strings.ContainsAny(rest[:1], ",;\n") || strings.HasPrefix(rest, "、")
}

// read reads a value that is written for the parameter.
func (p property) read(text string, inQuotes bool) (any, bool) {
	vs := []value{{kind: free, text: text}}
	if found := find(text); len(found) == 1 && found[0].end-found[0].at == len(text) && !inQuotes {
		vs[0] = found[0]
	}
	switch {
	case p.boolean:
		on, err := strconv.ParseBool(strings.ToLower(text))
		return on, err == nil
	case len(p.enum) > 0 && !slices.Contains(p.enum, text):
		return nil, false
	case p.kind == number || p.unit != "":
		return p.of(vs)
	case p.list:
		return []any{text}, true
	}
	return text, text != ""
}

// of returns values as an argument.
func (p property) of(vs []value) (any, bool) {
	list := make([]any, len(vs))
	for i, v := range vs {
		one, ok := p.one(v)
		if !ok {
			return nil, false
		}
		list[i] = one
	}
	if p.list {
		return list, true
	}
	return list[0], len(list) == 1
}

func (p property) one(v value) (any, bool) {
	switch {
	case p.unit != "" && v.kind == duration:
		per := map[string]time.Duration{
			"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
		}[p.unit]
		if n := float64(v.duration) / float64(per); !p.integer || n == float64(int64(n)) {
			return n, true
		}
		return nil, false
	case p.kind == number || p.unit != "":
		if v.kind != number {
			return nil, false
		}
		if _, err := strconv.ParseInt(v.text, 10, 64); p.integer && err != nil {
			return nil, false
		}
		return json.Number(v.text), true
	case p.kind == duration:
		return "PT" + strconv.FormatFloat(v.duration.Seconds(), 'f', -1, 64) + "S", true
	}
	return v.text, true
}

// enums takes the values of enumerations that the request mentions, if it is exactly one.
func (x *extraction) enums() {
	lower := strings.ToLower(x.text)
	for _, p := range x.props {
		if len(p.enum) == 0 || x.has(p) {
			continue
		}
		var found []string
		for _, v := range p.enum {
			spaced := strings.Join(wordsOf(v), " ")
			if len(v) > 1 && (cue{word: strings.ToLower(v)}.in(lower) >= 0 || spaced != "" && cue{word: spaced}.in(lower) >= 0) {
				found = append(found, v)
			}
		}
		if len(found) == 1 {
			x.args[p.name] = found[0]
			if p.list {
				x.args[p.name] = []any{found[0]}
			}
			x.values = slices.DeleteFunc(x.values, func(v value) bool { return v.text == found[0] })
		}
	}
}

// assign gives the values of a kind to the one parameter that can take them: the only required
// one that is open, or else the only open one.
func (x *extraction) assign(k kind) {
	var vs, from []value
	for _, v := range x.values {
		whole := v
		if v.kind == quoted {
			whole = wholeOf(v.text)
		}
		if whole.kind == k {
			vs, from = append(vs, whole), append(from, v)
		}
	}
	p, ok := x.only(func(p property) bool { return p.kind == k && len(p.enum) == 0 })
	if !ok || len(vs) == 0 || len(vs) > 1 && !p.list {
		return
	}
	if arg, fits := p.of(vs); fits {
		x.args[p.name] = arg
		x.values = slices.DeleteFunc(x.values, func(v value) bool { return slices.Contains(from, v) })
	}
}

// wholeOf returns the value that a text in quotes is as a whole, or one that is free.
func wholeOf(text string) value {
	if vs := find(text); len(vs) == 1 && vs[0].at == 0 && vs[0].end == len(text) {
		return vs[0]
	}
	return value{kind: free, text: text}
}

// only returns the only required parameter that is open and may take the value, or, without a
// required one, the only other one.
func (x *extraction) only(may func(property) bool) (property, bool) {
	var required, others []property
	for _, p := range x.props {
		switch {
		case x.has(p) || p.boolean || !may(p):
		case p.required:
			required = append(required, p)
		default:
			others = append(others, p)
		}
	}
	switch {
	case len(required) == 1:
		return required[0], true
	case len(required) == 0 && len(others) == 1:
		return others[0], true
	}
	return property{}, false
}

// numbers gives the only number to the only required number, or to the number whose name
// is beside it: "5 results" for num_results.
func (x *extraction) numbers() {
	for i := 0; i < len(x.values); i++ {
		v := x.values[i]
		if v.kind != number {
			continue
		}
		p, ok := x.only(func(p property) bool { return p.kind == number && x.beside(p, v) })
		if !ok && x.count(number) == 1 {
			p, ok = x.only(func(p property) bool { return p.kind == number && p.required })
		}
		if arg, fits := p.of([]value{v}); ok && fits {
			x.args[p.name] = arg
			x.values = slices.Delete(x.values, i, i+1)
			i--
		}
	}
}

func (x *extraction) count(k kind) (n int) {
	for _, v := range x.values {
		if v.kind == k {
			n++
		}
	}
	return n
}

var word = regexp.MustCompile(`\p{L}+`)

// beside reports whether a word of the parameter's name precedes or follows the number.
func (x *extraction) beside(p property, v value) bool {
	before, after := word.FindAllString(x.text[:v.at], -1), word.FindAllString(x.text[v.end:], -1)
	near := slices.Concat(before[max(0, len(before)-1):], after[:min(1, len(after))])
	return slices.ContainsFunc(near, func(w string) bool {
		return slices.ContainsFunc(wordsOf(p.name), func(n string) bool {
			w, n := strings.TrimSuffix(strings.ToLower(w), "s"), strings.TrimSuffix(n, "s")
			return w == n && len(n) > 1
		})
	})
}

// texts gives the only text in quotes to the only required text or path.
func (x *extraction) texts() {
	p, ok := x.only(func(p property) bool {
		return (p.kind == free || p.kind == path) && p.required && len(p.enum) == 0
	})
	if !ok || x.count(quoted) != 1 {
		return
	}
	i := slices.IndexFunc(x.values, func(v value) bool { return v.kind == quoted })
	if arg, fits := p.of(x.values[i : i+1]); fits {
		x.args[p.name] = arg
		x.values = slices.Delete(x.values, i, i+1)
	}
}

func (x *extraction) result() Parameters {
	out := Parameters{rest: x.rest()}
	for _, p := range x.props {
		if p.required && !x.has(p) {
			out.Open = append(out.Open, p.name)
		}
	}
	for _, v := range x.values {
		out.Unused = append(out.Unused, v.text)
	}
	args, err := json.Marshal(x.args)
	if err != nil {
		args = json.RawMessage("{}") // not possible: all are texts, numbers and lists of them
	}
	out.Args = args
	return out
}

// rest returns the request without its arguments.
func (x *extraction) rest() string {
	b := []byte(x.text)
	taken := x.taken
	for _, v := range x.all {
		if !slices.Contains(x.values, v) {
			taken = append(taken, [2]int{v.at, v.end})
		}
	}
	for _, t := range taken {
		for i := t[0]; i < t[1]; i++ {
			b[i] = ' '
		}
	}
	return string(b)
}

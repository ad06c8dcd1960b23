package offline

import (
	"bytes"
	_ "embed" // the built-in rules
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

// defaultRules are the rules of a first conversation, in English.
//
//go:embed rules.yaml
var defaultRules []byte

// ErrRules is wrapped by every error about a rule file.
var ErrRules = errors.New("invalid rules")

// ruleSet is a rule file; doc.go describes it. Nothing in it changes.
type ruleSet struct {
	Note     string             `yaml:"note"`
	Strip    []expression       `yaml:"strip"`
	Split    []splitter         `yaml:"split"`
	Rules    []*rule            `yaml:"rules"`
	Results  map[string]phrases `yaml:"results"`
	Missing  text               `yaml:"missing"`
	Fallback text               `yaml:"fallback"`
}

type splitter struct {
	Match expression `yaml:"match"`
	Order bool       `yaml:"order"`
}

type rule struct {
	Name   string           `yaml:"name"`
	Match  list[expression] `yaml:"match"`
	Text   text             `yaml:"text"`
	Calls  []call           `yaml:"calls"`
	Else   []call           `yaml:"else"`   // made when a result of calls is a failure
	Yields bool             `yaml:"yields"` // only used if the message is not a list of requests
}

type call struct {
	Tool list[text] `yaml:"tool"` // the first offered one is used
	Args arguments  `yaml:"args"`
}

type phrases struct {
	Success text `yaml:"success"`
	Failure text `yaml:"failure"`
}

func parse(rules []byte) (*ruleSet, error) {
	dec := yaml.NewDecoder(bytes.NewReader(rules))
	dec.KnownFields(true)
	var s ruleSet
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: want one YAML document, found more", ErrRules)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	return &s, nil
}

// check reports everything that is missing or contradictory.
func (s *ruleSet) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p := s.Results["default"]; p.Success.t == nil || p.Failure.t == nil {
		fail("results.default: success and failure are required: they phrase the results of tools that have no phrases")
	}
	if s.Fallback.t == nil {
		fail("fallback: is required: it is the answer when no rule matches")
	}
	if s.Missing.t == nil {
		fail("missing: is required: it is the answer when a tool is not offered")
	}
	names := make(map[string]bool, len(s.Rules))
	for i, r := range s.Rules {
		if r.Name == "" || names[r.Name] {
			fail("rules[%d].name: %q is empty or taken, want a unique name", i, r.Name)
		}
		names[r.Name] = true
		if len(r.Match) == 0 {
			fail("rule %q.match: is missing, want a regular expression or several", r.Name)
		}
		if (r.Text.t != nil) == (len(r.Calls) > 0) {
			fail("rule %q: want text or calls, and not both", r.Name)
		}
		if len(r.Else) > 0 && len(r.Calls) == 0 {
			fail("rule %q: else needs calls before it", r.Name)
		}
		for j, c := range append(r.Calls[:len(r.Calls):len(r.Calls)], r.Else...) {
			if len(c.Tool) == 0 {
				fail("rule %q, call %d: tool is missing", r.Name, j+1)
			}
		}
	}
	return errors.Join(errs...)
}

// invalid is an error that names the line, and does not keep yaml from finding others.
func invalid(n *yaml.Node, err error) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
}

// list is one value or several.
type list[T any] []T

// UnmarshalYAML accepts a scalar for a list of one.
func (l *list[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = make(list[T], 1)
		return n.Decode(&(*l)[0])
	}
	return n.Decode((*[]T)(l))
}

type expression struct{ *regexp.Regexp }

func (e *expression) UnmarshalYAML(n *yaml.Node) (err error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return invalid(n, errors.New("want a regular expression"))
	}
	if e.Regexp, err = regexp.Compile("(?i)" + n.Value); err != nil {
		return invalid(n, err)
	}
	return nil
}

// text is a template.
type text struct {
	t     *template.Template // nil: not given
	fixed bool               // it has no variables
}

func (x *text) UnmarshalYAML(n *yaml.Node) (err error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return invalid(n, errors.New("want text"))
	}
	x.fixed = !strings.Contains(n.Value, "{{")
	x.t, err = template.New("template").Funcs(functions).Option("missingkey=error").Parse(n.Value)
	if err != nil {
		return invalid(n, err)
	}
	return nil
}

func (x text) render(vars map[string]any) (string, error) {
	var b strings.Builder
	err := x.t.Execute(&b, vars)
	return b.String(), err
}

// arguments are a mapping in the order of the file, or the text of one.
type arguments struct {
	whole text
	each  []argument
}

type argument struct {
	name  string
	text  text            // if it is text
	value json.RawMessage // otherwise
}

func (a *arguments) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&a.whole)
	}
	if n.Kind != yaml.MappingNode {
		return invalid(n, errors.New("args is not a mapping"))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		arg, v := argument{name: n.Content[i].Value}, n.Content[i+1]
		var err error
		if v.Kind == yaml.ScalarNode && v.Tag == "!!str" && v.Value != "" {
			err = v.Decode(&arg.text)
		} else {
			var x any
			if err = v.Decode(&x); err == nil {
				arg.value, err = json.Marshal(x)
			}
		}
		if err != nil {
			return err
		}
		a.each = append(a.each, arg)
	}
	return nil
}

func (a *arguments) render(vars map[string]any) (json.RawMessage, error) {
	if a.whole.t != nil {
		s, err := a.whole.render(vars)
		if err == nil && !json.Valid([]byte(s)) {
			return json.Marshal(s) // like broken JSON of a model
		}
		return json.RawMessage(s), err
	}
	var b bytes.Buffer
	for i, arg := range a.each {
		b.WriteByte("{,"[min(i, 1)])
		b.Write(quote(arg.name))
		b.WriteByte(':')
		value := []byte(arg.value)
		if arg.text.t != nil {
			s, err := arg.text.render(vars)
			if err != nil {
				return nil, err
			}
			value = quote(s)
		}
		b.Write(value)
	}
	if len(a.each) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// quote returns the text as JSON, which can be any.
func quote(s string) []byte {
	b, _ := json.Marshal(s) //nolint:errchkjson // of a string
	return b
}

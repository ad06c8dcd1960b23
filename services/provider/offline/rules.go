package offline

import (
	"bytes"
	_ "embed" // the rule sets
	"errors"
	"fmt"
	"io"
	"regexp"

	"gopkg.in/yaml.v3"

	contract "skandha.dev/pkg/provider"
)

// DefaultRules are the rules of a first conversation, in English.
//
//go:embed rules.yaml
var DefaultRules []byte

// TestRules are rules for tests: the message determines exactly what the model does.
// The file rules_test.yaml in this folder lists every command, from
// "call TOOL {json}" to "never ends".
//
//go:embed rules_test.yaml
var TestRules []byte

// ErrRules is wrapped by every error about a rule file.
var ErrRules = errors.New("invalid rules")

// file is a rule file as written; doc.go describes it.
type file struct {
	Note        string                       `yaml:"note"`
	OfferedOnly *bool                        `yaml:"offered_only"`
	Strip       []string                     `yaml:"strip"`
	Split       []fileSplit                  `yaml:"split"`
	Tables      map[string]map[string]string `yaml:"tables"`
	Rules       []fileRule                   `yaml:"rules"`
	Results     map[string]filePhrase        `yaml:"results"`
	Missing     string                       `yaml:"missing"`
	Fallback    string                       `yaml:"fallback"`
}

type fileSplit struct {
	Match string `yaml:"match"`
	Order bool   `yaml:"order"`
}

type fileRule struct {
	Name   string       `yaml:"name"`
	Match  list         `yaml:"match"`
	Text   string       `yaml:"text"`
	Calls  []fileCall   `yaml:"calls"`
	Then   [][]fileCall `yaml:"then"`
	Else   []fileCall   `yaml:"else"`
	Answer string       `yaml:"answer"`
	Yields bool         `yaml:"yields"`

	DelayMS string     `yaml:"delay_ms"`
	Hang    bool       `yaml:"hang"`
	Endless bool       `yaml:"endless"`
	Empty   bool       `yaml:"empty"`
	Loop    bool       `yaml:"loop"`
	Words   string     `yaml:"words"`
	Repeat  string     `yaml:"repeat"`
	Error   *fileError `yaml:"error"`
	Usage   *fileUsage `yaml:"usage"`
}

type fileCall struct {
	ID        string    `yaml:"id"`
	Tool      list      `yaml:"tool"`
	Args      yaml.Node `yaml:"args"`
	ArgsJSON  string    `yaml:"args_json"`
	DependsOn list      `yaml:"depends_on"`
}

type fileError struct {
	Code      string `yaml:"code"`
	Message   string `yaml:"message"`
	RetryInMS string `yaml:"retry_in_ms"`
}

type fileUsage struct {
	Input        string `yaml:"input_tokens"`
	Output       string `yaml:"output_tokens"`
	CostMicroUSD string `yaml:"cost_micro_usd"`
}

type filePhrase struct {
	Success string `yaml:"success"`
	Failure string `yaml:"failure"`
}

// list is one string or several.
type list []string

// UnmarshalYAML accepts a scalar for a list of one.
func (l *list) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = list{n.Value}
		return nil
	}
	var many []string
	if err := n.Decode(&many); err != nil {
		return err
	}
	*l = many
	return nil
}

func parse(rules []byte) (*ruleSet, error) {
	dec := yaml.NewDecoder(bytes.NewReader(rules))
	dec.KnownFields(true)
	var f file
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	if err := dec.Decode(new(file)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: want one YAML document, found more", ErrRules)
	}
	s, err := compile(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	return s, nil
}

// ruleSet is a compiled rule file; nothing in it changes.
type ruleSet struct {
	note        string
	offeredOnly bool
	strip       []*regexp.Regexp
	split       []splitter
	rules       []*rule
	results     map[string]phrase
	phrase      phrase // for tools without one
	missing     *tmpl
	fallback    *tmpl
}

type splitter struct {
	re    *regexp.Regexp
	order bool
}

type rule struct {
	name      string
	match     []*regexp.Regexp
	text      *tmpl
	rounds    [][]call // the first is calls, the others then
	otherwise []call   // instead of then, when the first round had a failure
	answer    *tmpl
	alone     bool // cannot be one part of a message
	yields    bool // only used if the message is not a list of requests

	behaviour
}

// behaviour is what a test asks of a model; all templates may be nil.
type behaviour struct {
	delay                *tmpl
	hang, endless, empty bool
	loop                 bool
	words, repeat        *tmpl
	code                 *tmpl
	message, retryIn     *tmpl
	input, output, cost  *tmpl
}

type call struct {
	id        string
	tools     []string
	toolTmpl  *tmpl // when the only name is a template
	args      *value
	argsJSON  *tmpl
	dependsOn []string
}

type phrase struct{ success, failure *tmpl }

var codes = map[contract.ErrorCode]bool{
	contract.ErrAuth: true, contract.ErrRateLimited: true, contract.ErrUnavailable: true, contract.ErrTimeout: true,
	contract.ErrBadRequest: true, contract.ErrGarbage: true, contract.ErrTooLong: true, contract.ErrInternal: true,
}

package guidefile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/guide"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/frontmatter"
)

// Providers is a list of providers, in order of preference. In YAML it may also be a single
// one.
type Providers []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Providers) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*p = Providers{n.Value}
		return nil
	}
	var list []string
	if err := n.Decode(&list); err != nil {
		return errors.New("is neither a provider's name nor a list of names")
	}
	*p = list
	return nil
}

// settings are the keys before the prompt.
type settings struct {
	Name            string             `yaml:"name"`
	Description     string             `yaml:"description"`
	Temperature     *float64           `yaml:"temperature"`
	MemoryPolicy    guide.MemoryPolicy `yaml:"memory_policy"`
	InitialMemories []string           `yaml:"initial_memories"`
	Decision        guide.Decision     `yaml:"decision"`
	Provider        Providers          `yaml:"provider"`
	Model           string             `yaml:"model"`
	Tools           []string           `yaml:"tools"`
	Permissions     []string           `yaml:"permissions"`
	Limits          limits             `yaml:"limits"`
	IgnoreAgentsMD  bool               `yaml:"ignore_agents_md"`

	body string
}

// limits have the keys of agents.NAME.limits.
type limits struct {
	Rounds         *int           `yaml:"rounds"`
	Calls          *int           `yaml:"calls"`
	Tokens         *int64         `yaml:"tokens"`
	CostUSD        *float64       `yaml:"cost_usd"`
	SessionCostUSD *float64       `yaml:"session_cost_usd"`
	Wall           *time.Duration `yaml:"wall"`
	ModelCall      *time.Duration `yaml:"model_call"`
	WindowTurns    *int           `yaml:"window_turns"`
}

// Parse reads the guide of that name. The error lists all mistakes, with the file and the line.
func Parse(file, name string, b []byte) (guide.Guide, error) {
	parts, err := frontmatter.Split(b)
	s, err := configfile.Parse(file, parts.Head, func([]byte) (settings, error) {
		if err != nil {
			return settings{}, err
		}
		s := settings{body: parts.Body}
		err := parts.Decode(&s)
		if s.body == "" {
			err = configfile.Join(err, configfile.Problems{{Line: parts.Line, Text: "the body is empty; it is the system prompt"}})
		}
		return s, err
	}, func(s settings) error { return s.check(name) })
	if err != nil {
		return guide.Guide{}, err
	}
	return s.guide(name), nil
}

// check reports mistakes; each begins with its key.
func (s settings) check(name string) error {
	if s.body == "" {
		return nil // reported by Parse
	}
	g := s.guide(name)
	g.Limits = guide.Limits{} // their keys differ
	errs := []error{trimmed(g.Check(), name), security.CheckPermissions("permissions", s.Permissions)}
	if s.Name != "" && s.Name != name {
		errs = append(errs, fmt.Errorf("name is %q, want %q as the file is called", s.Name, name))
	}
	_, wrong := decide.ParseChoices(s.Provider, s.Model)
	return errors.Join(append(append(errs, wrong...), s.Limits.check())...)
}

// trimmed removes the guide's name from the beginning of an error.
func trimmed(err error, name string) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("guide %q: ", name)))
}

func (s settings) guide(name string) guide.Guide {
	return guide.Guide{
		Name: name, Description: s.Description, SystemPrompt: s.body, Temperature: s.Temperature,
		MemoryPolicy: s.MemoryPolicy, InitialMemories: s.InitialMemories, Decision: s.Decision, Providers: s.Provider,
		Model: s.Model, Tools: s.Tools, Permissions: s.Permissions, Limits: s.Limits.guide(),
		IgnoreAgentsMD: s.IgnoreAgentsMD,
	}
}

func (l limits) guide() guide.Limits {
	return guide.Limits{
		Rounds: value(l.Rounds), Calls: value(l.Calls), Tokens: value(l.Tokens), CostUSD: value(l.CostUSD),
		SessionCostUSD: value(l.SessionCostUSD), WallMS: value(l.Wall).Milliseconds(),
		ModelCallMS: value(l.ModelCall).Milliseconds(), WindowTurns: value(l.WindowTurns),
	}
}

// check refuses 0, which is no limit in the configuration of an agent: a guide can only lower one.
func (l limits) check() error {
	g, errs := l.guide(), []error{}
	for _, f := range []struct {
		key      string
		set, pos bool
	}{
		{"rounds", l.Rounds != nil, g.Rounds > 0},
		{"calls", l.Calls != nil, g.Calls > 0},
		{"tokens", l.Tokens != nil, g.Tokens > 0},
		{"cost_usd", l.CostUSD != nil, g.CostUSD >= 1e-6},
		{"session_cost_usd", l.SessionCostUSD != nil, g.SessionCostUSD >= 1e-6},
		{"wall", l.Wall != nil, g.WallMS > 0},
		{"model_call", l.ModelCall != nil, g.ModelCallMS > 0},
		{"window_turns", l.WindowTurns != nil, g.WindowTurns > 0},
	} {
		if f.set && !f.pos {
			errs = append(errs, fmt.Errorf("limits.%s is too low; a guide lowers a limit to more than 0", f.key))
		}
	}
	return errors.Join(errs...)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// named matches the names that a file can have.
var named = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

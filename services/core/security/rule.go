package security

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/planner"
)

// Rule is one line of the policy. Every condition must hold; an absent one does.
type Rule struct {
	// Action is what the rule is about: tool.call, as it is if absent, or
	// confirmation: who may answer when a person is asked about a call. Then the
	// principal is whoever answers, and all else is of the call that was shown.
	Action string `yaml:"action"`
	Tool   string `yaml:"tool"` // pattern, e.g. "file_system:*"; to deny or to ask, in upper and lower case
	// Permission is one that the tool declares, a group such as network.*, or several of
	// them with blanks between. To allow, it covers all that the tool declares; otherwise
	// any of that is enough.
	Permission string    `yaml:"permission"`
	Principal  string    `yaml:"principal"`  // pattern on the writer whose input it is
	Agent      string    `yaml:"agent"`      // pattern
	Risk       tool.Risk `yaml:"risk"`       // of the tool: low, medium or high
	Idempotent *bool     `yaml:"idempotent"` // whether the tool is
	// Args has patterns on arguments, by name. An argument that is absent does not
	// match. To allow, a rule takes a value as it is written, and a wildcard only
	// where every program reads the value alike: a clean path or URL. To deny or to
	// ask, any value below the name counts, in upper and lower case, with what is
	// escaped or roundabout in it resolved, and a URL without a port means any.
	Args        map[string]string `yaml:"args"`
	Effect      event.Effect      `yaml:"effect"` // allow, deny or confirm
	Reason      string            `yaml:"reason"` // for people, and with deny for the model
	Obligations *Obligations      `yaml:"obligations"`
}

// Obligations bind a call that a rule lets pass.
type Obligations struct {
	MaxDuration    *time.Duration `yaml:"max_duration"`     // from its being given to a runner until its end; 1s to 2h
	MaxResultBytes *int           `yaml:"max_result_bytes"` // of its result as JSON; a larger one is withheld; 256 to 16777216
	Note           *string        `yaml:"note"`             // told to the model beside the result; up to 500 bytes
}

// Bounds of a rule.
const (
	minDuration  = time.Second
	minResult    = 256
	maxResult    = 16 << 20
	maxNote      = 500
	maxReason    = 500
	maxArguments = 16
)

// checker collects what is wrong with rules.
type checker struct{ faults []error }

func (c *checker) add(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

func (c *checker) err() error { return errors.Join(c.faults...) }

func (c *checker) rule(at string, r Rule) rule {
	r.Args = maps.Clone(r.Args)
	name := r.Tool
	if r.Effect != decide.Allow {
		name = tool.FoldName(name)
	}
	out := rule{
		Rule: r, name: at, tool: c.pattern(at+".tool", name), principal: c.pattern(at+".principal", r.Principal), agent: c.pattern(at+".agent", r.Agent),
	}
	if r.Idempotent != nil { // the policy is what was checked
		is := *r.Idempotent
		out.Idempotent = &is
	}
	c.effect(at, r)
	if err := CheckPermissions(at+".permission", strings.Fields(r.Permission)); err != nil {
		c.add("%w", err)
	}
	if r.Tool == planner.ExecuteName && r.Action != event.ActionConfirmation {
		c.add("%s.tool: nothing is decided about %s itself, only about each of its steps; to take it away leave it out of agents.NAME.tools", at, r.Tool)
	}
	if r.Risk != "" && r.Risk != tool.RiskLow && r.Risk != tool.RiskMedium && r.Risk != tool.RiskHigh {
		c.add("%s.risk is %q, want low, medium or high", at, r.Risk)
	}
	c.text(at+".reason", r.Reason, maxReason)
	if len(r.Args) > maxArguments {
		c.add("%s.args has %d names, at most %d", at, len(r.Args), maxArguments)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		out.args = append(out.args, c.argument(at+".args."+name, name, r.Args[name], r.Effect))
	}
	if r.Obligations != nil {
		switch {
		case r.Action == event.ActionConfirmation:
			c.add("%s.obligations: an answer has nothing to keep to; say them in the rule that asks", at)
		case r.Effect == decide.Deny:
			c.add("%s.obligations: a call that is denied has nothing to keep to; leave them out", at)
		}
		out.obligations = c.obligations(at+".obligations", *r.Obligations)
	}
	return out
}

func (c *checker) effect(at string, r Rule) {
	want := []event.Effect{decide.Allow, decide.Deny, decide.Ask}
	switch r.Action {
	case "", event.ActionCall:
	case event.ActionConfirmation:
		want = want[:2]
	default:
		c.add("%s.action is %q, want %s or %s", at, r.Action, event.ActionCall, event.ActionConfirmation)
	}
	switch {
	case slices.Contains(want, r.Effect):
	case r.Effect == decide.Ask:
		c.add("%s.effect is %q, and nobody is asked whether somebody may answer: want allow or deny", at, r.Effect)
	default:
		c.add("%s.effect is %q, want allow, deny or confirm", at, r.Effect)
	}
}

func (c *checker) pattern(at, p string) pattern {
	out := newPattern(p)
	if _, err := path.Match(out.text, ""); err != nil || !utf8.ValidString(p) {
		c.add("%s %q is no pattern: want * for any characters, ? for one, [a-z] for one of them", at, p)
	}
	return out
}

func (c *checker) argument(at, name, p string, effect event.Effect) argument {
	if name == "" {
		c.add("%s: the name of an argument is empty", at)
	}
	if p == "" {
		c.add("%s is empty; write * for any value", at)
	}
	c.pattern(at, p)
	out := newArgument(name, p)
	if effect == decide.Allow && out.isURL && !out.bound() {
		c.add("%s %q lets any host through that begins or ends alike: write the host as it is, *.example.com, or * for each", at, p)
	}
	return out
}

// obligations is nil for none.
func (c *checker) obligations(at string, o Obligations) *event.Obligations {
	var out event.Obligations
	if d := o.MaxDuration; d != nil {
		if *d < minDuration || *d > tool.MaxTimeout {
			c.add("%s.max_duration is %s, want %s to %s", at, *d, minDuration, tool.MaxTimeout)
		}
		out.MaxDurationMS = d.Milliseconds()
	}
	if n := o.MaxResultBytes; n != nil {
		if *n < minResult || *n > maxResult {
			c.add("%s.max_result_bytes is %d, want %d to %d", at, *n, minResult, maxResult)
		}
		out.MaxResultBytes = *n
	}
	if o.Note != nil {
		if strings.TrimSpace(*o.Note) == "" {
			c.add("%s.note is empty; say what the model is to be told, or leave it out", at)
		}
		c.text(at+".note", *o.Note, maxNote)
		out.Note = *o.Note
	}
	if out == (event.Obligations{}) {
		return nil
	}
	return &out
}

func (c *checker) text(at, s string, most int) {
	if len(s) > most || !utf8.ValidString(s) {
		c.add("%s has %d bytes, want at most %d of UTF-8 text", at, len(s), most)
	}
}

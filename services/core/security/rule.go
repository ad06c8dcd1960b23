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

// Rule is one rule of the policy. All conditions must hold; an absent one always does.
type Rule struct {
	// Action is the action that the rule applies to: tool.call, which is the default, or
	// confirmation for rules about who may answer a confirmation request. For the latter,
	// the principal is the writer of the answer, and all other conditions apply to the
	// call that was shown.
	Action string `yaml:"action"`
	Tool   string `yaml:"tool"` // pattern, e.g. "file_system:*"; to deny or to ask, case-insensitive
	// Permission is a permission that the tool declares, a group such as network.*, or
	// several of them separated by blanks. To allow, it must cover all permissions that
	// the tool declares; otherwise one of them is enough.
	Permission string `yaml:"permission"`
	// Principal is a pattern for the writer of the input; with a slash, for the writer and the
	// person whom it has authenticated, such as "irc/alice".
	Principal  string    `yaml:"principal"`
	Agent      string    `yaml:"agent"`      // pattern
	Risk       tool.Risk `yaml:"risk"`       // of the tool: low, medium or high
	Idempotent *bool     `yaml:"idempotent"` // whether the tool is
	// Args holds patterns for arguments, by name. An absent argument does not match. To
	// allow, a value must match exactly as written, and wildcards match only values that
	// every program reads alike: a clean path or URL. To deny or to ask, any value below
	// the name counts, case-insensitive and with escapes and detours resolved, and a URL
	// without a port matches any port.
	Args map[string]string `yaml:"args"`
	// After is "untrusted", or a pattern for where a text comes from that the model has seen: an
	// input's origin such as "email:alice@example.org", "web", "tool:NAME" for what another tool
	// with a permission network.* has returned, "memory", "file", "webhook:NAME" or
	// "listener:NAME". With confirm, no approval for the session replaces the question.
	After       string       `yaml:"after"`
	Effect      event.Effect `yaml:"effect"` // allow, deny or confirm
	Reason      string       `yaml:"reason"` // for people and, with deny, for the model
	Obligations *Obligations `yaml:"obligations"`
}

// Untrusted is the condition [Rule].After for a text from outside of any origin.
const Untrusted = "untrusted"

// Obligations bind a call that a rule lets pass.
type Obligations struct {
	MaxDuration *time.Duration `yaml:"max_duration"` // from its assignment to a runner until its end; 1s to 2h
	// of its result as JSON; a larger one is withheld; 256 to 16777216
	MaxResultBytes *int    `yaml:"max_result_bytes"`
	Note           *string `yaml:"note"` // shown to the model with the result; up to 500 bytes
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
		Rule: r, name: at, tool: c.pattern(at+".tool", name), principal: c.pattern(at+".principal", r.Principal),
		agent: c.pattern(at+".agent", r.Agent), after: c.pattern(at+".after", r.After),
	}
	if r.Idempotent != nil { // later changes by the caller must not change the policy
		is := *r.Idempotent
		out.Idempotent = &is
	}
	c.effect(at, r)
	c.after(at+".after", r.After)
	if r.After != "" && r.Effect == decide.Allow {
		c.add("%s.after: not supported with effect allow; add a rule without it, and one with after behind it", at)
	}
	if err := CheckPermissions(at+".permission", strings.Fields(r.Permission)); err != nil {
		c.add("%w", err)
	}
	if r.Tool == planner.FindName && r.Action != event.ActionConfirmation {
		c.add("%s.tool: rules do not apply to %s, which only searches the tools of the agent; "+
			"agents.NAME.shortlist: 0 disables it", at, r.Tool)
	}
	if r.Tool == planner.ExecuteName && r.Action != event.ActionConfirmation {
		c.add("%s.tool: rules apply to the steps of %s, not to the tool itself; "+
			"to disable it, omit it from agents.NAME.tools", at, r.Tool)
	}
	if strings.HasPrefix(tool.FoldName(r.Tool), tool.DeliverPrefix) {
		c.add("%s.tool: deliveries are not subject to policy; an agent cannot make them, "+
			"and what a listener delivers is set by listeners and notify", at)
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
			c.add("%s.obligations: not supported for action confirmation; add them to the rule that asks", at)
		case r.Effect == decide.Deny:
			c.add("%s.obligations: not supported with effect deny; remove them", at)
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
		c.add("%s.effect is %q, want allow or deny for action confirmation", at, r.Effect)
	default:
		c.add("%s.effect is %q, want allow, deny or confirm", at, r.Effect)
	}
}

func (c *checker) pattern(at, p string) pattern {
	out := newPattern(p)
	if _, err := path.Match(out.text, ""); err != nil || !utf8.ValidString(p) {
		c.add("%s %q is not a valid pattern: use * for any characters, ? for one, [a-z] for one of a range", at, p)
	}
	return out
}

func (c *checker) argument(at, name, p string, effect event.Effect) argument {
	if name == "" {
		c.add("%s: empty argument name", at)
	}
	if p == "" {
		c.add("%s is empty; use * for any value", at)
	}
	c.pattern(at, p)
	out := newArgument(name, p)
	if effect == decide.Allow && out.isURL && !out.bound() {
		c.add("%s %q also matches other hosts that begin or end alike; "+
			"use the exact host, *.example.com, or * for any host", at, p)
	}
	return out
}

// obligations returns nil if there are none.
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
			c.add("%s.note is empty; set a text for the model, or remove it", at)
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

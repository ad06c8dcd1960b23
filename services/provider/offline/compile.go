package offline

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// compiler turns a rule file into a rule set and collects everything wrong with it.
type compiler struct {
	funcs tmplFuncs
	errs  []error
}

func compile(f file) (*ruleSet, error) {
	c := &compiler{funcs: newFuncs(f.Tables)}
	s := &ruleSet{
		note:        f.Note,
		offeredOnly: f.OfferedOnly == nil || *f.OfferedOnly,
		results:     make(map[string]phrase, len(f.Results)),
		missing:     c.template("missing", f.Missing),
		fallback:    c.template("fallback", f.Fallback),
	}
	for i, e := range f.Strip {
		s.strip = append(s.strip, c.expression(fmt.Sprintf("strip[%d]", i), e))
	}
	for i, e := range f.Split {
		s.split = append(s.split, splitter{c.expression(fmt.Sprintf("split[%d].match", i), e.Match), e.Order})
	}
	for tool, p := range f.Results {
		where := "results." + tool
		s.results[tool] = phrase{c.template(where+".success", p.Success), c.template(where+".failure", p.Failure)}
	}
	s.phrase = s.results["default"]
	if s.phrase.success == nil || s.phrase.failure == nil {
		c.fail("results.default", "success and failure are required: they phrase the results of tools that have no phrases")
	}
	if s.fallback == nil {
		c.fail("fallback", "is required: it is the answer when no rule matches")
	}
	if s.missing == nil && s.offeredOnly {
		c.fail("missing", "is required unless offered_only is false: it is the answer when a tool is not offered")
	}
	c.rules(s, f.Rules)
	return s, errors.Join(c.errs...)
}

func (c *compiler) fail(where, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: "+format, append([]any{where}, args...)...))
}

func (c *compiler) expression(where, expr string) *regexp.Regexp {
	if expr == "" {
		c.fail(where, "is empty, want a regular expression")
		return nil
	}
	re, err := regexp.Compile("(?i)" + expr)
	if err != nil {
		c.fail(where, "%v", err)
	}
	return re
}

func (c *compiler) template(where, text string) *tmpl {
	if text == "" {
		return nil
	}
	t, err := newTmpl(where, text, c.funcs)
	if err != nil {
		c.fail(where, "%v", err)
	}
	return t
}

func (c *compiler) rules(s *ruleSet, rules []fileRule) {
	names := make(map[string]bool, len(rules))
	for i, r := range rules {
		where := "rules[" + strconv.Itoa(i) + "]"
		if r.Name == "" || names[r.Name] {
			c.fail(where+".name", "%q is empty or taken, want a unique name", r.Name)
		}
		names[r.Name] = true
		s.rules = append(s.rules, c.rule("rule "+strconv.Quote(r.Name), r))
	}
}

func (c *compiler) rule(where string, f fileRule) *rule {
	r := &rule{
		name: f.Name, text: c.template(where+".text", f.Text), answer: c.template(where+".answer", f.Answer),
		yields: f.Yields, behaviour: c.behaviour(where, f),
	}
	if len(f.Match) == 0 {
		c.fail(where+".match", "is missing, want a regular expression or several")
	}
	for i, e := range f.Match {
		r.match = append(r.match, c.expression(fmt.Sprintf("%s.match[%d]", where, i), e))
	}
	if len(f.Calls) > 0 {
		r.rounds = append(r.rounds, c.calls(where+".calls", f.Calls))
		for i, calls := range f.Then {
			r.rounds = append(r.rounds, c.calls(fmt.Sprintf("%s.then[%d]", where, i), calls))
		}
		r.otherwise = c.calls(where+".else", f.Else)
	} else if len(f.Then)+len(f.Else) > 0 {
		c.fail(where, "then and else need calls before them")
	}
	ways := 0
	for _, has := range []bool{
		r.text != nil && len(f.Calls) == 0, len(f.Calls) > 0, f.Hang, f.Endless, f.Empty, f.Words != "", f.Error != nil,
	} {
		if has {
			ways++
		}
	}
	if ways != 1 {
		c.fail(where, "has %d of text, calls, hang, endless, empty, words and error, want exactly one", ways)
	}
	r.alone = len(r.rounds) != 1 || r.answer != nil || r.named() || r.misbehaves()
	return r
}

// named reports whether a call has an explicit id, which is valid only within its rule.
func (r *rule) named() bool {
	for _, calls := range r.rounds {
		for _, c := range calls {
			if c.id != "" || len(c.dependsOn) > 0 {
				return true
			}
		}
	}
	return false
}

func (b behaviour) misbehaves() bool {
	return b.delay != nil || b.hang || b.endless || b.empty || b.loop || b.words != nil || b.repeat != nil ||
		b.code != nil || b.input != nil || b.output != nil || b.cost != nil
}

func (c *compiler) behaviour(where string, f fileRule) behaviour {
	b := behaviour{
		delay: c.template(where+".delay_ms", f.DelayMS),
		hang:  f.Hang, endless: f.Endless, empty: f.Empty, loop: f.Loop,
		words:  c.template(where+".words", f.Words),
		repeat: c.template(where+".repeat", f.Repeat),
	}
	if e := f.Error; e != nil {
		b.code = c.template(where+".error.code", e.Code)
		b.message = c.template(where+".error.message", e.Message)
		b.retryIn = c.template(where+".error.retry_in_ms", e.RetryInMS)
		if b.code == nil {
			c.fail(where+".error.code", "is missing")
		}
	}
	if u := f.Usage; u != nil {
		b.input = c.template(where+".usage.input_tokens", u.Input)
		b.output = c.template(where+".usage.output_tokens", u.Output)
		b.cost = c.template(where+".usage.cost_micro_usd", u.CostMicroUSD)
	}
	return b
}

func (c *compiler) calls(where string, calls []fileCall) []call {
	out := make([]call, len(calls))
	known := make(map[string]bool)
	for i, f := range calls {
		at := fmt.Sprintf("%s[%d]", where, i)
		out[i] = call{id: f.ID, tools: f.Tool, dependsOn: f.DependsOn, argsJSON: c.template(at+".args_json", f.ArgsJSON)}
		switch {
		case len(f.Tool) == 0:
			c.fail(at+".tool", "is missing")
		case strings.Contains(f.Tool[0], "{{"):
			out[i].toolTmpl = c.template(at+".tool", f.Tool[0])
		}
		if f.ArgsJSON != "" && !f.Args.IsZero() {
			c.fail(at, "has args and args_json, want one of them")
		}
		if !f.Args.IsZero() {
			if f.Args.Kind != yaml.MappingNode {
				c.fail(at+".args", "is not a mapping")
			}
			out[i].args = c.value(at+".args", &f.Args)
		}
		for _, d := range f.DependsOn {
			if !known[d] {
				c.fail(at+".depends_on", "%q is not the id of an earlier call", d)
			}
		}
		known[f.ID] = f.ID != ""
	}
	return out
}

package decide

import (
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/executor"
)

// Choice is a provider, and one of its models. Its text is "<provider>" or
// "<provider>/<model>"; the empty choice is the first provider that an instance offers.
type Choice struct {
	Provider string
	Model    string // empty: the provider's default
}

// ParseChoice reads "<provider>" or "<provider>/<model>".
func ParseChoice(s string) (Choice, error) {
	name, model, has := strings.Cut(s, "/")
	if name == "" || has && model == "" {
		return Choice{}, fmt.Errorf("is %q, want a provider's name, or name/model", s)
	}
	return Choice{name, model}, nil
}

// ParseChoices reads a list of providers. A model beside it belongs to the first. Each error
// begins with the field, provider or model.
func ParseChoices(names []string, model string) (out []Choice, errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, name := range names {
		c, err := ParseChoice(name)
		switch {
		case err != nil:
			bad("provider[%d] %w", i, err)
		case slices.ContainsFunc(out, func(o Choice) bool { return o.Provider == c.Provider }):
			bad("provider[%d] names %q a second time", i, c.Provider)
		case i == 0 && c.Model != "" && model != "":
			bad("model is %q, and provider names model %q; remove one of them", model, c.Model)
		}
		out = append(out, c)
	}
	return prefer(out, model), errs
}

// prefer returns the choices with that model, if it is set, for the first.
func prefer(list []Choice, model string) []Choice {
	if model == "" {
		return list
	}
	if len(list) == 0 {
		return []Choice{{Model: model}}
	}
	list = slices.Clone(list)
	list[0].Model = model
	return list
}

// choices returns the providers that may answer the session, in order of preference: the
// session's own, then the agent's. It is never empty.
func (s *State) choices(a *Agent) []Choice {
	var all []Choice
	if a != nil {
		all = a.Providers
	}
	if own, err := ParseChoice(s.Provider); err == nil {
		at := slices.IndexFunc(all, func(c Choice) bool { return c.Provider == own.Provider })
		if at >= 0 && own.Model == "" {
			own.Model = all[at].Model
		}
		rest := slices.DeleteFunc(slices.Clone(all), func(c Choice) bool { return c.Provider == own.Provider })
		all = append([]Choice{own}, rest...)
	}
	if len(all) == 0 {
		all = []Choice{{}}
	}
	return all
}

// Providers returns the names of the providers that may answer the session now, in order of
// preference; "" is any provider. With the final answer of the current plan's attempt, it
// returns those for another attempt.
func (s *State) Providers(a *Agent, failed *executor.Answer) []string {
	all := s.choices(a)
	if failed != nil && s.Turn != nil && s.Turn.Plan != nil {
		p := *s.Turn.Plan
		if left := p.next(all, *failed, planError(*failed)); len(left) > 0 {
			all = left
		}
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Provider
	}
	return names
}

// pickProvider chooses the first of the providers that an instance offers, and such an
// instance. False means that the turn waits: for a free slot of that provider, or for any
// of them to appear.
func (b *builder) pickProvider(from []Choice, not []subject.Instance) (Choice, subject.Instance, bool) {
	for _, c := range from {
		if inst, ok := b.env.Executors.PickProvider(c.Provider, not); ok {
			return c, inst, true
		}
		if inst, ok := b.env.Executors.PickProvider(c.Provider, nil); ok {
			return c, inst, true
		}
		if b.env.Executors.NoProvider(c.Provider) == 0 {
			break // it is present, but busy
		}
	}
	return Choice{}, "", false
}

// pickOther chooses an instance outside of not, of the first provider that has one.
func (b *builder) pickOther(from []Choice, not []subject.Instance) (Choice, subject.Instance, bool) {
	for _, c := range from {
		if inst, ok := b.env.Executors.PickProvider(c.Provider, not); ok {
			return c, inst, true
		}
	}
	return Choice{}, "", false
}

// anyOffered reports whether an executor offers one of the providers.
func (b *builder) anyOffered(of []Choice) bool {
	return slices.ContainsFunc(of, func(c Choice) bool { return b.env.Executors.NoProvider(c.Provider) == 0 })
}

// from returns the providers that have not failed for good, beginning with the plan's own.
func (p *Plan) from(all []Choice) []Choice {
	at := max(slices.IndexFunc(all, func(c Choice) bool { return c.Provider == p.Use }), 0)
	return p.without(slices.Concat(all[at:], all[:at]))
}

// without removes the providers that failed for good.
func (p *Plan) without(list []Choice) []Choice {
	return slices.DeleteFunc(list, func(c Choice) bool { return slices.Contains(p.Not, c.Provider) })
}

// after returns the providers for another attempt at a plan: those that come after the one
// that failed, then from the beginning; without those that failed for good.
func (p *Plan) after(all []Choice) []Choice {
	at := slices.IndexFunc(all, func(c Choice) bool { return c.Provider == p.Use }) + 1
	return p.without(slices.Concat(all[at:], all[:at]))
}

// chooseProvider answers /provider.
func (x *causeDecider) chooseProvider(args []string) (answer, chosen string) {
	infos := x.env.Executors.Providers()
	if len(args) == 0 {
		return commands.ListProviders(infos, x.s.choices(x.env.Agent)[0].Provider), ""
	}
	if args[0] == commands.DefaultProvider {
		return commands.ProviderReset, args[0]
	}
	c, err := ParseChoice(args[0])
	if err != nil {
		return "The argument " + err.Error() + ".", ""
	}
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	if !slices.Contains(names, c.Provider) {
		return commands.NoSuchProvider(c.Provider, names), ""
	}
	return commands.ProviderChosen(c.Provider, c.Model), args[0]
}

package providertest

import (
	"slices"
	"testing"

	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
)

// Option declares what an adapter cannot do.
type Option func(*suite)

type suite struct {
	without  map[string]string
	noDeltas string
}

// Without leaves out a case that the adapter's wire cannot carry, and prints why.
func Without(name, why string) Option {
	return func(s *suite) { s.without[name] = why }
}

// NoDeltas declares that an adapter passes nothing on while an answer is being written, and
// why. The suite then wants no delta at all, and logs what it cannot test.
func NoDeltas(why string) Option { return func(s *suite) { s.noDeltas = why } }

// Run tests an adapter against the contract. newAdapter returns a new adapter whose
// model obeys the test rules, with retries that do not pause for long.
func Run(t *testing.T, newAdapter func(t *testing.T) adapter.Adapter, options ...Option) {
	s := &suite{without: map[string]string{}}
	for _, set := range options {
		set(s)
	}
	for _, c := range s.cases() {
		if why, without := s.without[c.name]; without {
			delete(s.without, c.name)
			t.Logf("NOT TESTED: %q, which the wire cannot carry: %s", c.name, why)
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.test(t, newAdapter(t)) })
	}
	for name := range s.without {
		t.Errorf("the suite has no case %q to leave out", name)
	}
}

// listsModels tests an adapter that can be asked how it is.
func listsModels(t *testing.T, a adapter.Adapter) {
	c, ok := a.(adapter.Checker)
	if !ok {
		t.Log("NOT TESTED: the list of models: the adapter is no adapter.Checker")
		return
	}
	models, err := c.Models(t.Context())
	if err != nil || !slices.Contains(models, a.Info().Model) {
		t.Errorf("the models are %q, %v; want %q among them", models, err, a.Info().Model)
	}
	if b := c.Breaker(); b.State != providerapi.Closed {
		t.Errorf("the breaker is %+v", b)
	}
}

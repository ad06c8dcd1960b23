package providertest

import (
	"testing"

	"skandha.dev/services/provider/adapter"
)

// Option changes what [Run] tests.
type Option func(*options)

type options struct{ without map[string]string }

// Without leaves out a case that the adapter's wire cannot carry, and prints why.
func Without(name, why string) Option {
	return func(o *options) { o.without[name] = why }
}

// Run tests an adapter against the contract. newAdapter returns a new adapter whose
// model obeys the test rules, with retries that do not pause for long.
func Run(t *testing.T, newAdapter func(t *testing.T) adapter.Adapter, opts ...Option) {
	o := options{without: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	for _, c := range cases() {
		if why, without := o.without[c.name]; without {
			delete(o.without, c.name)
			t.Logf("NOT TESTED: %q, which the wire cannot carry: %s", c.name, why)
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.test(t, newAdapter(t)) })
	}
	for name := range o.without {
		t.Errorf("the suite has no case %q to leave out", name)
	}
}

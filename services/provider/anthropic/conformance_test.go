package anthropic_test

import (
	"testing"
	"time"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/anthropictest"
	"skandha.dev/services/test/providertest"
)

// quick retries without making a test wait.
var quick = retry.Config{Pause: time.Millisecond, MaxPause: 50 * time.Millisecond, TripAfter: 1000}

func client(t testing.TB, s *anthropictest.Server, change ...func(*anthropic.Config)) *anthropic.Adapter {
	t.Helper()
	cfg := anthropic.Config{
		BaseURL: s.URL, APIKey: anthropictest.Key, Model: anthropictest.Model, Retry: quick, HTTPClient: s.Client,
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// thinking asks a model to think.
func thinking(model string) func(*anthropic.Config) {
	return func(c *anthropic.Config) { c.Model, c.ThinkingTokens = model, 2048 }
}

// wellFormed reports requests that the API would refuse, even if the adapter has recovered.
func wellFormed(t *testing.T, s *anthropictest.Server) {
	t.Helper()
	for _, why := range s.Wrong() {
		t.Errorf("a request was refused: %s", why)
	}
}

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*anthropic.Config){
		"a recent model":             func(*anthropic.Config) {},
		"a recent model that thinks": thinking(anthropictest.Model),
		"an older model":             func(c *anthropic.Config) { c.Model = anthropictest.OldModel },
		"an older model that thinks": thinking(anthropictest.OldModel),
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Anthropic, func(t *testing.T) adapter.Adapter {
				s := anthropictest.New(t)
				t.Cleanup(func() { wellFormed(t, s) })
				return client(t, s, change)
			})
		})
	}
}

package gemini_test

import (
	"testing"
	"time"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/gemini"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/providertest"
)

// quick retries without making a test wait.
var quick = retry.Config{Pause: time.Millisecond, MaxPause: 50 * time.Millisecond, TripAfter: 1000}

func client(t testing.TB, s *geminitest.Server, change ...func(*gemini.Config)) *gemini.Adapter {
	t.Helper()
	cfg := gemini.Config{BaseURL: s.URL, APIKey: geminitest.Key, Model: geminitest.Model, Retry: quick}
	for _, f := range change {
		f(&cfg)
	}
	a, err := gemini.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Gemini, func(t *testing.T) adapter.Adapter { return client(t, geminitest.New(t)) })
}

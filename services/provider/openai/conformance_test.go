package openai_test

import (
	"testing"
	"time"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/providertest"
)

// quick retries without making a test wait.
var quick = retry.Config{Pause: time.Millisecond, MaxPause: 50 * time.Millisecond, TripAfter: 1000}

func client(t testing.TB, s *openaitest.Server, change ...func(*openai.Config)) *openai.Adapter {
	t.Helper()
	cfg := openai.Config{
		BaseURL: s.URL, APIKey: openaitest.Key, Model: openaitest.Model, Retry: quick, HTTPClient: s.Client,
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func speaking(api openai.API) func(*openai.Config) { return func(c *openai.Config) { c.API = api } }

func TestConformance(t *testing.T) {
	for api, of := range map[openai.API]providertest.Subject{
		openai.Chat: providertest.OpenAIChat, openai.Responses: providertest.OpenAIResponses,
	} {
		t.Run(string(api), func(t *testing.T) {
			providertest.Run(t, of, func(t *testing.T) adapter.Adapter {
				return client(t, openaitest.New(t), speaking(api))
			})
		})
	}
}

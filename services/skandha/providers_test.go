package main

import (
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
)

func TestProvidersShowTheEmbedder(t *testing.T) {
	no := false
	none := providerapi.Report{Instance: "p0", Providers: []providerapi.Provider{{Name: "offline", Model: "rules"}}}
	with := none
	with.Embedder = &providerapi.Embedder{
		Model: "openai/small\x1b[2J", Note: "at api.example.com", Reachable: &no, Error: "api.example.com answered 401",
		Breaker: providerapi.Breaker{State: providerapi.Open}, Price: &providerapi.Price{Input: 0.02},
		Usage: &provider.Usage{InputTokens: 70, CostMicroUSD: 1400, Unpriced: 1},
	}
	for _, c := range []struct {
		reports []providerapi.Report
		want    []string
	}{
		{[]providerapi.Report{none}, []string{"Embedder: none, so searches are lexical. SKANDHA_EMBEDDER", "ollama/nomic-embed-text"}},
		{[]providerapi.Report{none, with}, []string{
			"Embedder of p0: openai/small", "at api.example.com, not reachable, breaker open, price 0.02/0",
			"70 tokens since its start, which cost 0.0014 USD and an unknown amount.", "Embedder of p0: api.example.com answered 401",
		}},
	} {
		var out strings.Builder
		if err := printProviders(&out, c.reports); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
				t.Errorf("it prints %q, without %q", out.String(), want)
			}
		}
	}
}

func TestProvidersShowWhatHearsAndSpeaks(t *testing.T) {
	with := providerapi.Report{
		Instance: "p0",
		Transcriber: &providerapi.SpeechModel{
			Model: "openai/hear-1", Note: "at api.example.com", Reachable: new(false), Error: "api.example.com answered 401",
			Breaker: providerapi.Breaker{State: providerapi.Open},
		},
		Speaker: &providerapi.SpeechModel{Model: "command/espeak-ng", Note: "on this machine", Reachable: new(true), Breaker: providerapi.Breaker{State: providerapi.Closed}},
	}
	for _, c := range []struct {
		report providerapi.Report
		want   []string
	}{
		{providerapi.Report{Instance: "p0"}, []string{"Transcriber: none. SKANDHA_TRANSCRIBER", "Speaker: none. SKANDHA_SPEAKER"}},
		{with, []string{
			"Transcriber of p0: openai/hear-1 at api.example.com, not reachable", "Transcriber of p0: api.example.com answered 401",
			"Speaker of p0: command/espeak-ng on this machine, reachable.",
		}},
	} {
		var b strings.Builder
		if err := printProviders(&b, []providerapi.Report{c.report}); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%q is missing in %s", w, b.String())
			}
		}
	}
}

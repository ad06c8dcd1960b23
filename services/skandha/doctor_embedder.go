package main

import (
	"context"
	"errors"
	"os"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider"
)

// embedderWait bounds asking an embedder's API whether it answers.
const embedderWait = 3 * time.Second

// embedderFinding reports what computes embeddings: of the running system, or of one that this
// configuration would start.
func (g *globals) embedderFinding(ctx context.Context) finding {
	if g.running() {
		return g.runningEmbedder(ctx)
	}
	cfg := provider.Config{Provider: g.Provider, BaseURL: g.BaseURL, Embedder: g.Embedder}
	var err error
	if cfg.Settings, err = provider.ReadSettings(g.Config); err != nil {
		return finding{what: "embedder", advice: "see the configuration"}
	}
	e, why, err := provider.SelectEmbedder(cfg, os.Getenv)
	switch {
	case err != nil:
		return finding{need: true, what: "embedder", advice: err.Error()}
	case e == nil:
		return noEmbedder
	}
	f := finding{ok: true, what: "embedder: " + e.Info().Name + "/" + e.Info().Model, advice: why}
	ctx, cancel := context.WithTimeout(ctx, embedderWait)
	defer cancel()
	if _, err := e.Models(ctx); err != nil {
		f.ok, f.advice = false, err.Error()
	}
	return f
}

var noEmbedder = finding{what: "embedder: none, searches are lexical", advice: provider.EmbedderHint}

func (g *globals) runningEmbedder(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, embedderWait)
	defer cancel()
	var e providerapi.Embedder
	c, err := g.connectRunning(ctx)
	if err == nil {
		defer c.close()
		err = c.AskService(ctx, providerapi.EmbedderName, providerapi.VerbStatus, nil, &e)
		if errors.Is(err, bus.ErrUnavailable) {
			err = c.AskService(ctx, providerapi.EmbedderName, providerapi.VerbAbsent, nil, &e)
		}
	}
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return noEmbedder
	case err != nil:
		return finding{what: "embedder: no provider process answers", advice: err.Error()}
	}
	return finding{
		ok: e.Breaker.State == providerapi.Closed, what: "embedder: " + line(e.Model, 100), advice: line(e.Breaker.Reason, 300),
	}
}

package embedding

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Embedder asks one model of one API. It is safe for concurrent use.
type Embedder struct {
	cfg    Config
	wire   wire
	client *http.Client
	policy *retry.Policy
	api    httpapi.API
}

var _ adapter.Checker = (*Embedder)(nil)

// Answer is the embeddings of some texts.
type Answer struct {
	Vectors [][]float32 // one per text, of length 1 and of one dimension
	Usage   contract.Usage
}

// New validates the configuration; it does not connect yet.
func New(cfg Config) (*Embedder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the embedder: %w", err)
	}
	cfg = cfg.WithDefaults()
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	w := wires[cfg.Wire]
	return &Embedder{
		cfg: cfg, wire: w, client: httpapi.Client(cfg.HTTPClient), policy: retry.New(cfg.Retry),
		api: httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, w.hint),
	}, nil
}

// Info describes the embedder: its provider and model.
func (e *Embedder) Info() contract.Info {
	return contract.Info{Name: e.cfg.Name, Model: e.cfg.Model, Note: "at " + httpapi.Host(e.cfg.BaseURL)}
}

// Breaker implements adapter.Checker.
func (e *Embedder) Breaker() providerapi.Breaker { return e.policy.Breaker() }

// Models implements adapter.Checker. A local server that has not got the model is an error.
func (e *Embedder) Models(ctx context.Context) ([]string, error) {
	models, err := e.api.Models(ctx, e.client, e.cfg.BaseURL+e.wire.list, e.wire.header(e.cfg))
	if err != nil || e.cfg.Wire != Ollama {
		return models, err
	}
	if !slices.Contains(models, e.cfg.Model) && !slices.Contains(models, e.cfg.Model+":latest") {
		return models, adapter.Errorf(contract.ErrBadRequest, "%s does not have the model %s: run ollama pull %s",
			httpapi.Host(e.cfg.BaseURL), e.cfg.Model, e.cfg.Model)
	}
	return models, nil
}

// Embed returns a vector per text. The error is a *[contract.Error] where it can be; when ctx
// was cancelled it may be the context's own.
func (e *Embedder) Embed(ctx context.Context, texts []string) (Answer, error) {
	body, err := json.Marshal(e.wire.request(e.cfg.Model, texts))
	if err != nil {
		return Answer{}, adapter.Errorf(contract.ErrInternal, "encoding the texts: %v", err)
	}
	var answer Answer
	_, err = e.policy.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
		var err error
		answer, err = e.try(ctx, body, len(texts))
		return contract.Response{}, false, err
	})
	return answer, err
}

// try asks once.
func (e *Embedder) try(ctx context.Context, body []byte, texts int) (Answer, error) {
	raw, err := e.api.Post(ctx, e.client, e.cfg.BaseURL+e.wire.path(e.cfg.Model), e.wire.header(e.cfg), body)
	if err != nil {
		return Answer{}, err
	}
	vectors, tokens, err := e.wire.read(raw)
	if err == nil {
		err = check(vectors, texts)
	}
	if err != nil {
		if f := httpapi.ParseFault(raw); f.Known() { // with status 200
			return Answer{}, e.api.InStream(f)
		}
		return Answer{}, adapter.Errorf(contract.ErrGarbage, "the answer holds no embeddings of the texts: %s",
			e.api.Clean(err.Error()))
	}
	return Answer{vectors, httpapi.Counted(contract.Usage{InputTokens: tokens})}, nil
}

// check normalises the vectors, or says why they cannot be used.
func check(vectors [][]float32, texts int) error {
	if len(vectors) != texts {
		return fmt.Errorf("it has %d vectors for %d texts", len(vectors), texts)
	}
	for _, v := range vectors {
		if err := embed.Normalise(v); err != nil {
			return err
		}
		if len(v) != len(vectors[0]) {
			return fmt.Errorf("its vectors have the dimensions %d and %d", len(vectors[0]), len(v))
		}
	}
	return nil
}

// vector is a vector as JSON. Servers write null for a number that is not finite, which
// [encoding/json] would read as 0.
type vector []float32

// UnmarshalJSON implements [json.Unmarshaler].
func (v *vector) UnmarshalJSON(b []byte) error {
	if bytes.Contains(b, []byte("null")) {
		return fmt.Errorf("a vector holds a number that is not finite")
	}
	return json.Unmarshal(b, (*[]float32)(v))
}

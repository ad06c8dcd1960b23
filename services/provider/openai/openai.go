package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Adapter asks models at one base URL.
type Adapter struct {
	cfg    Config
	chat   sdk.ChatCompletionService
	policy *retry.Policy
	api    httpapi.API
}

var _ adapter.Adapter = (*Adapter)(nil)

// New validates the configuration; it does not connect yet.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the openai provider: %w", err)
	}
	cfg = cfg.WithDefaults()
	opts := []option.RequestOption{
		option.WithHTTPClient(httpapi.Client(cfg.HTTPClient)), option.WithBaseURL(cfg.BaseURL), option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(string(cfg.APIKey)))
	}
	if cfg.Organization != "" {
		opts = append(opts, option.WithOrganization(cfg.Organization))
	}
	if cfg.Project != "" {
		opts = append(opts, option.WithProject(cfg.Project))
	}
	return &Adapter{
		cfg: cfg,
		// Not sdk.NewClient: it would send keys and headers of the
		// environment to whatever base URL is configured.
		chat:   sdk.NewChatCompletionService(opts...),
		policy: retry.New(cfg.Retry),
		api:    httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, ", usually /v1"),
	}, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info {
	return contract.Info{Name: a.cfg.Name, Model: a.cfg.Model, Note: "chat completions at " + httpapi.Host(a.cfg.BaseURL)}
}

// Generate implements adapter.Adapter.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	params, err := a.params(req)
	if err != nil {
		return contract.Response{}, err
	}
	resp, err := a.policy.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
		return a.try(ctx, params, delta)
	})
	if err != nil {
		if ctx.Err() == context.Canceled {
			return contract.Response{}, ctx.Err()
		}
		return contract.Response{}, adapter.Failure(err)
	}
	return resp, nil
}

// try asks once. It reports whether pieces of the answer were passed on.
func (a *Adapter) try(
	ctx context.Context, params sdk.ChatCompletionNewParams, delta func(text, reasoning string),
) (contract.Response, bool, error) {
	ctx, w := httpapi.Watch(ctx, a.cfg.Stall)
	defer w.Stop()
	stream := a.chat.NewStreaming(ctx, params, option.WithMiddleware(a.intercept(w)))
	defer func() { _ = stream.Close() }() // it was read completely, or abandoned

	acc := accumulator{limits: a.cfg.Limits, delta: delta}
	for stream.Next() {
		if err := acc.add(stream.Current()); err != nil {
			return contract.Response{}, acc.begun, err
		}
	}
	if err := stream.Err(); err != nil {
		return contract.Response{}, acc.begun, a.explain(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return contract.Response{}, acc.begun, a.explain(ctx, err)
	}
	resp, err := acc.finish()
	if err != nil {
		return contract.Response{}, acc.begun, err
	}
	resp.Usage.CostMicroUSD = a.cfg.Prices.Cost(acc.usage.PromptTokens, acc.usage.PromptTokensDetails.CachedTokens,
		acc.usage.CompletionTokens)
	if resp.Model == "" {
		resp.Model = params.Model
	}
	return resp, acc.begun, nil
}

// intercept handles every response before the SDK does: it reads errors of any shape.
func (a *Adapter) intercept(w *httpapi.Watchdog) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(req)
		if err != nil {
			return resp, err
		}
		return w.Receive(resp, a.api)
	}
}

// explain maps an error of the SDK or of the connection.
func (a *Adapter) explain(ctx context.Context, err error) error {
	var inStream *ssestream.StreamError
	if ctx.Err() == nil && errors.As(err, &inStream) {
		f := httpapi.ParseFault(inStream.Event.Data)
		if !f.Known() {
			f.Message = "an error without a description"
		}
		return a.api.InStream(f)
	}
	return a.api.Explain(ctx, err)
}

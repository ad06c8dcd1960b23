package openai

import (
	"context"
	"fmt"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/retry"
)

// Adapter asks models at one base URL.
type Adapter struct {
	cfg    Config
	chat   sdk.ChatCompletionService
	policy *retry.Policy
	redact redactor
}

var _ adapter.Adapter = (*Adapter)(nil)

// New validates the configuration; it does not connect yet.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the openai provider: %w", err)
	}
	cfg = cfg.WithDefaults()
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = defaultClient()
	}
	client := *cfg.HTTPClient
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	opts := []option.RequestOption{
		option.WithHTTPClient(&client), option.WithBaseURL(cfg.BaseURL), option.WithMaxRetries(0),
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
		redact: newRedactor(cfg.APIKey),
	}, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info {
	return contract.Info{Name: a.cfg.Name, Model: a.cfg.Model, Note: "chat completions at " + hostOf(a.cfg.BaseURL)}
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
	ctx, w := watch(ctx, a.cfg.Stall)
	defer w.stop()
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
	resp.Usage.CostMicroUSD = a.cfg.Prices.cost(acc.usage)
	if resp.Model == "" {
		resp.Model = params.Model
	}
	return resp, acc.begun, nil
}

// cost returns millionths of a dollar: a price per million tokens, times tokens.
func (p Prices) cost(u sdk.CompletionUsage) int64 {
	cached := min(u.PromptTokensDetails.CachedTokens, u.PromptTokens)
	cachedPrice := p.CachedInput
	if cachedPrice == 0 {
		cachedPrice = p.Input
	}
	return int64(float64(u.PromptTokens-cached)*p.Input + float64(cached)*cachedPrice +
		float64(u.CompletionTokens)*p.Output + 0.5)
}

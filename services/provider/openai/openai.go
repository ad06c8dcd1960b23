package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Adapter asks models at one base URL.
type Adapter struct {
	cfg       Config
	chat      sdk.ChatCompletionService
	responses responses.ResponseService
	policy    *retry.Policy
	api       httpapi.API
	plain     sync.Map // models that return no encrypted reasoning, by name
	schemas   httpapi.Schemas
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
		chat:      sdk.NewChatCompletionService(opts...),
		responses: responses.NewResponseService(opts...),
		policy:    retry.New(cfg.Retry),
		api:       httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, ", usually /v1"),
	}, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info {
	wire := "chat completions"
	if a.cfg.API == Responses {
		wire = "responses"
	}
	return contract.Info{Name: a.cfg.Name, Model: a.cfg.Model, Note: wire + " at " + httpapi.Host(a.cfg.BaseURL)}
}

// Models implements adapter.Checker.
func (a *Adapter) Models(ctx context.Context) ([]string, error) {
	return models(ctx, a.api, a.cfg.HTTPClient, a.cfg.BaseURL, a.cfg.APIKey)
}

// Models asks a server for its models, before there is an adapter for one of them. The key may
// be empty; a nil client is the default one.
func Models(ctx context.Context, c *http.Client, base string, key httpapi.Key) ([]string, error) {
	return models(ctx, httpapi.NewAPI(base, 0, key, ""), c, base, key)
}

func models(ctx context.Context, api httpapi.API, c *http.Client, base string, key httpapi.Key) ([]string, error) {
	h := http.Header{}
	if key != "" {
		h.Set("Authorization", "Bearer "+string(key))
	}
	return api.Models(ctx, httpapi.Client(c), strings.TrimSuffix(base, "/")+"/models", h)
}

// Breaker implements adapter.Checker.
func (a *Adapter) Breaker() providerapi.Breaker { return a.policy.Breaker() }

// Generate implements adapter.Adapter.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	talk, err := req.Conversation()
	if err != nil {
		return contract.Response{}, adapter.Errorf(contract.ErrBadRequest, "messages: %v", err)
	}
	req.Model = cmp.Or(req.Model, a.cfg.Model)
	return a.schemas.Ask(req.Model, req, func(req contract.Request) (contract.Response, error) {
		return a.generate(ctx, req, talk, delta)
	})
}

func (a *Adapter) generate(
	ctx context.Context, req contract.Request, talk []contract.Message, delta func(text, reasoning string),
) (contract.Response, error) {
	ask := a.chatQuestion
	if a.cfg.API == Responses {
		ask = a.responsesQuestion
	}
	try, err := ask(req, talk)
	if err != nil {
		return contract.Response{}, err
	}
	resp, err := a.policy.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
		return try(ctx, delta)
	})
	if err != nil {
		if ctx.Err() == context.Canceled {
			return contract.Response{}, ctx.Err()
		}
		return contract.Response{}, adapter.Failure(err)
	}
	resp.Model = cmp.Or(resp.Model, req.Model)
	return resp, nil
}

// try asks once. It reports whether pieces of the answer were passed on.
type try func(ctx context.Context, delta func(text, reasoning string)) (contract.Response, bool, error)

// joiner joins the events of one answer.
type joiner[E any] interface {
	add(event E) error
	started() bool // something was passed to delta
	finish() (contract.Response, error)
}

// read asks once, and reads the answer to its end.
func read[E any](
	ctx context.Context, a *Adapter, open func(context.Context, option.RequestOption) *ssestream.Stream[E], j joiner[E],
) (contract.Response, bool, error) {
	ctx, w := httpapi.Watch(ctx, a.cfg.Stall)
	defer w.Stop()
	stream := open(ctx, option.WithMiddleware(a.intercept(w)))
	defer func() { _ = stream.Close() }() // it was read completely, or abandoned

	for stream.Next() {
		if err := j.add(stream.Current()); err != nil {
			return contract.Response{}, j.started(), a.explain(ctx, err)
		}
	}
	if err := cmp.Or(stream.Err(), ctx.Err()); err != nil {
		return contract.Response{}, j.started(), a.explain(ctx, err)
	}
	resp, err := j.finish()
	if err != nil {
		return contract.Response{}, j.started(), err
	}
	if resp.TextContent == "" && len(resp.ToolCalls) == 0 {
		return contract.Response{}, j.started(), nothing(resp.StopReason)
	}
	if err := a.cfg.Limits.Check(resp); err != nil {
		return contract.Response{}, j.started(), err
	}
	resp.Usage = httpapi.Counted(resp.Usage)
	return resp, j.started(), nil
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

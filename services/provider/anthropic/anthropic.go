package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Adapter asks models at one base URL.
type Adapter struct {
	cfg      Config
	messages sdk.MessageService
	models   sdk.ModelService
	policy   *retry.Policy
	api      httpapi.API
	schemas  httpapi.Schemas
}

var (
	_ adapter.Adapter = (*Adapter)(nil)
	_ adapter.Checker = (*Adapter)(nil)
)

// New validates the configuration; it does not connect yet.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the anthropic provider: %w", err)
	}
	cfg = cfg.WithDefaults()
	opts := []option.RequestOption{
		option.WithHTTPClient(httpapi.Client(cfg.HTTPClient)), option.WithBaseURL(cfg.BaseURL),
		option.WithAPIKey(string(cfg.APIKey)), option.WithMaxRetries(0), option.WithMiddleware(discreet),
		option.WithoutOpenTelemetry(), option.WithOpenTelemetryPropagation(false),
	}
	return &Adapter{
		cfg: cfg,
		// Not sdk.NewClient: it takes keys, profiles, headers and addresses from the environment.
		messages: sdk.NewMessageService(opts...), models: sdk.NewModelService(opts...),
		policy: retry.New(cfg.Retry),
		api:    httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, ", usually without /v1"),
	}, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info {
	return contract.Info{Name: a.cfg.Name, Model: a.cfg.Model, Note: "Messages API at " + httpapi.Host(a.cfg.BaseURL)}
}

// Generate implements adapter.Adapter.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	resp, err := a.schemas.Ask(cmp.Or(req.Model, a.cfg.Model), req, func(req contract.Request) (contract.Response, error) {
		return a.insist(ctx, req, delta)
	})
	if err != nil {
		if ctx.Err() == context.Canceled {
			return contract.Response{}, ctx.Err()
		}
		return contract.Response{}, adapter.Failure(err)
	}
	return resp, nil
}

// insist asks with all thinking blocks. If the API refuses them, it asks with those of the turn
// that is not answered yet, and then without any.
func (a *Adapter) insist(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (resp contract.Response, err error) {
	var before []byte
	for keep := keepAll; keep <= keepNone; keep++ {
		q, wrong := a.question(req, keep)
		if wrong != nil {
			return resp, wrong
		}
		if bytes.Equal(q.body, before) {
			continue
		}
		if resp, err = a.ask(ctx, q, delta); !q.thoughts || !refusesThoughts(err) {
			return resp, err
		}
		before = q.body
	}
	return resp, err
}

var aboutThoughts = regexp.MustCompile(`(?i)thinking\W{0,3}block|signature|expected .?thinking`)

// refusesThoughts reports whether the API refused the thinking blocks of a request: they do
// not fit what precedes them, or one is missing.
func refusesThoughts(err error) bool {
	var e *contract.Error
	return errors.As(err, &e) && e.Code == contract.ErrBadRequest && aboutThoughts.MatchString(e.Message)
}

// ask asks until the policy has had enough.
func (a *Adapter) ask(
	ctx context.Context, q *question, delta func(text, reasoning string),
) (contract.Response, error) {
	return a.policy.Do(ctx, func(ctx context.Context) (contract.Response, bool, error) {
		return a.try(ctx, q, delta)
	})
}

// try asks once. It reports whether pieces of the answer were passed on.
func (a *Adapter) try(
	ctx context.Context, q *question, delta func(text, reasoning string),
) (contract.Response, bool, error) {
	ctx, w := httpapi.Watch(ctx, a.cfg.Stall)
	defer w.Stop()
	stream := a.messages.NewStreaming(ctx, sdk.MessageNewParams{},
		option.WithRequestBody("application/json", q.body), option.WithMiddleware(a.intercept(w)))
	defer func() { _ = stream.Close() }() // it was read completely, or abandoned

	acc := accumulator{limits: a.cfg.Limits.WithDefaults(), delta: delta, tools: q.tools, clean: a.api.Clean}
	for !acc.done && stream.Next() {
		if err := acc.add([]byte(stream.Current().RawJSON())); err != nil {
			return contract.Response{}, acc.begun, a.api.Explain(ctx, err)
		}
	}
	if err := errors.Join(stream.Err(), ctx.Err()); err != nil {
		return contract.Response{}, acc.begun, a.explain(ctx, err)
	}
	resp, err := acc.finish(q.model)
	return resp, acc.begun, err
}

// Models implements adapter.Checker.
func (a *Adapter) Models(ctx context.Context) ([]string, error) {
	page, err := a.models.List(ctx, sdk.ModelListParams{Limit: sdk.Int(providerapi.MaxModels)},
		option.WithMiddleware(bounded))
	var refused *sdk.Error
	switch {
	case errors.As(err, &refused):
		return nil, a.api.Status(refused.StatusCode, nil, httpapi.ParseFault([]byte(refused.RawJSON())), time.Now())
	case err != nil:
		return nil, a.api.Explain(ctx, err)
	}
	var out []string
	for _, m := range page.Data {
		out = append(out, m.ID)
	}
	return out, nil
}

// maxModels bounds the list of models, in bytes.
const maxModels = 4 << 20

func bounded(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxModels)
	}
	return resp, err
}

// Breaker implements adapter.Checker.
func (a *Adapter) Breaker() providerapi.Breaker { return a.policy.Breaker() }

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

// discreet removes what the SDK tells about this machine.
func discreet(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") {
			req.Header.Del(name)
		}
	}
	return next(req)
}

// explain maps an error of the SDK or of the connection.
func (a *Adapter) explain(ctx context.Context, err error) error {
	var inStream *sdk.Error
	if ctx.Err() == nil && errors.As(err, &inStream) {
		return a.inStream([]byte(inStream.RawJSON()))
	}
	return a.api.Explain(ctx, err)
}

// inStream maps an event that is an error.
func (a *Adapter) inStream(event []byte) error {
	f := httpapi.ParseFault(event)
	if !f.Known() {
		f.Message = "an error without a description"
	}
	return a.api.InStream(f)
}

package gemini

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // the SDK prints with it
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genai"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
)

// Adapter asks models at one base URL.
type Adapter struct {
	cfg     Config
	models  *genai.Models
	policy  *retry.Policy
	api     httpapi.API
	schemas httpapi.Schemas
}

var _ adapter.Adapter = (*Adapter)(nil)

// New validates the configuration; it does not connect yet.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the gemini provider: %w", err)
	}
	cfg = cfg.WithDefaults()
	a := &Adapter{cfg: cfg, policy: retry.New(cfg.Retry), api: httpapi.NewAPI(cfg.BaseURL, cfg.Stall, cfg.APIKey, "")}
	client := httpapi.Client(cfg.HTTPClient)
	client.Transport = transport{next: client.Transport, api: a.api}
	// Everything that the SDK would otherwise take from the environment is given. With two
	// keys there, it prints that it uses one of them, which is not so.
	printed := log.Writer()
	log.SetOutput(io.Discard)
	defer log.SetOutput(printed)
	c, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: string(cfg.APIKey), HTTPClient: client,
		HTTPOptions: genai.HTTPOptions{BaseURL: cfg.BaseURL, APIVersion: "v1beta"},
	})
	if err != nil { // its text holds the configuration, and so the key
		return nil, errors.New("configuring the gemini provider: the SDK refuses the configuration")
	}
	a.models = c.Models
	return a, nil
}

// Info implements adapter.Adapter.
func (a *Adapter) Info() contract.Info {
	return contract.Info{Name: a.cfg.Name, Model: a.cfg.Model, Note: "Gemini API at " + httpapi.Host(a.cfg.BaseURL)}
}

// Models implements adapter.Checker.
func (a *Adapter) Models(ctx context.Context) ([]string, error) {
	return a.api.Models(ctx, httpapi.Client(a.cfg.HTTPClient),
		strings.TrimSuffix(a.cfg.BaseURL, "/")+"/v1beta/models?pageSize="+strconv.Itoa(providerapi.MaxModels),
		http.Header{"X-Goog-Api-Key": []string{string(a.cfg.APIKey)}})
}

// Breaker implements adapter.Checker.
func (a *Adapter) Breaker() providerapi.Breaker { return a.policy.Breaker() }

// Generate implements adapter.Adapter.
func (a *Adapter) Generate(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	if err := ctx.Err(); err != nil {
		return contract.Response{}, adapter.Failure(err)
	}
	if len(req.Tools) > 0 { // models before Gemini 3 refuse a schema of the answer beside tools
		req = httpapi.InWords(req)
	}
	resp, err := a.schemas.Ask(cmp.Or(req.Model, a.cfg.Model), req, func(req contract.Request) (contract.Response, error) {
		return a.ask(ctx, req, delta)
	})
	if err != nil {
		if ctx.Err() == context.Canceled {
			return contract.Response{}, ctx.Err()
		}
		return contract.Response{}, adapter.Failure(err)
	}
	return resp, nil
}

// ask asks until the policy has had enough.
func (a *Adapter) ask(
	ctx context.Context, req contract.Request, delta func(text, reasoning string),
) (contract.Response, error) {
	q, err := a.question(req)
	if err != nil {
		return contract.Response{}, err
	}
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
	t := &tape{}
	acc := accumulator{limits: a.cfg.Limits, delta: delta, tools: q.tools, clean: a.api.Clean}
	for chunk, err := range a.models.GenerateContentStream(recorded(ctx, w, t), q.model, genai.Text("-"), q.config()) {
		if err == nil {
			err = acc.add(chunk, t.take())
		}
		if err != nil {
			return contract.Response{}, acc.begun, a.api.Explain(ctx, err)
		}
	}
	if err := errors.Join(t.err, ctx.Err()); err != nil {
		return contract.Response{}, acc.begun, a.api.Explain(ctx, err)
	}
	resp, err := acc.finish()
	if err != nil {
		return contract.Response{}, acc.begun, err
	}
	resp.Usage = httpapi.Counted(resp.Usage)
	if resp.Model == "" {
		resp.Model = q.model
	}
	return resp, acc.begun, nil
}

// transport hands every response to the question's watchdog and tape, before the SDK reads it.
type transport struct {
	next http.RoundTripper
	api  httpapi.API
}

type recordingKey struct{}

type recording struct {
	watchdog *httpapi.Watchdog
	tape     *tape
}

func recorded(ctx context.Context, w *httpapi.Watchdog, t *tape) context.Context {
	return context.WithValue(ctx, recordingKey{}, recording{w, t})
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	to := r.Context().Value(recordingKey{}).(recording)
	if resp, err = to.watchdog.Receive(resp, t.api); err != nil {
		return nil, err
	}
	resp.Body = to.tape.record(resp.Body, t.api)
	return resp, nil
}

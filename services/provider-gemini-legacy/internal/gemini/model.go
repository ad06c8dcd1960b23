package gemini

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/generative-ai-go/genai"
	"google.golang.org/api/option"

	"skandha.dev/pkg/provider"
)

// Name is the provider's name.
const Name = "gemini-legacy"

// maxTime limits a request whose call has no deadline. Without one, the SDK would set its own
// and end it before the answer is read.
const maxTime = 10 * time.Minute

// Model asks the models at one base URL. It is safe for concurrent use.
type Model struct {
	cfg    Config
	host   string
	client *genai.Client
}

// New validates the configuration. It does not connect to the API.
func New(cfg Config) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg.withDefaults()}
	u, err := url.Parse(m.cfg.BaseURL)
	if err != nil {
		return nil, err // not after Validate
	}
	m.host = u.Host
	// The SDK also opens a gRPC client, which this package never uses. It cannot connect,
	// because its address is a URL, and sleeps after 30 minutes. The placeholder keeps it from
	// searching the machine for other credentials.
	m.client, err = genai.NewClient(context.Background(), option.WithHTTPClient(&http.Client{Transport: m}),
		option.WithEndpoint(m.cfg.BaseURL), option.WithAPIKey("added-by-the-transport"))
	if err != nil {
		return nil, fmt.Errorf("preparing the SDK: %w", err)
	}
	return m, nil
}

// Close releases the SDK's connections.
func (m *Model) Close() error { return m.client.Close() }

// Info describes the provider.
func (m *Model) Info() provider.Info {
	return provider.Info{
		Name: Name, Model: m.cfg.Model, Note: "Gemini API at " + m.host + ", through the SDK that ended in 2025",
	}
}

// Generate answers a request. The error is a [*provider.Error], or the error of a context
// that has ended.
func (m *Model) Generate(ctx context.Context, call provider.Call) (provider.Response, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxTime)
		defer cancel()
	}
	name := cmp.Or(call.Request.Model, m.cfg.Model)
	if !isModel(name) {
		return provider.Response{}, failure(provider.ErrBadRequest, "%q is not a model's name", name)
	}
	q, err := newQuestion(call.Request)
	if err != nil {
		return provider.Response{}, err
	}
	resp, err := m.ask(ctx, name, q)
	if err != nil {
		return provider.Response{}, err
	}
	resp.Model = cmp.Or(resp.Model, name)
	return resp, nil
}

// ask sends the question once.
func (m *Model) ask(ctx context.Context, name string, q *question) (provider.Response, error) {
	ctx, watch := newWatch(ctx, m.cfg.Stall)
	defer watch.stop()
	x := &exchange{exact: q.exact, tape: &tape{model: m, watch: watch}}
	defer func() { _ = x.tape.Close() }() // the answer is read, or worthless

	model := m.client.GenerativeModel(name)
	model.SystemInstruction, model.Tools, model.GenerationConfig = q.system, q.tools, q.settings
	chat := model.StartChat()
	chat.History = q.history
	stream := chat.SendMessageStream(withExchange(ctx, x), q.last...)
	a := answer{model: m, tools: q.names}
	for {
		more, err := a.next(stream, x.tape)
		if err != nil {
			return provider.Response{}, m.explain(ctx, err)
		}
		if !more {
			return a.finish()
		}
	}
}

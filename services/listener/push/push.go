package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
)

// Config of a gateway.
type Config struct {
	URL        string `yaml:"url"`        // of the server, such as https://push.example.org
	Topic      string `yaml:"topic"`      // for messages whose destination is empty or "-"
	Token      string `yaml:"token"`      // env:NAME or file:PATH; sent as a bearer token
	Idempotent bool   `yaml:"idempotent"` // the server recognizes a repeated Idempotency-Key
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	switch u, err := url.Parse(c.URL); {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, fmt.Errorf("url is %q, want an http or https address", secret.HideText(c.URL)))
	case u.User != nil:
		errs = append(errs, errors.New("url has a user; remove it, and set token to env:NAME or file:PATH"))
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		errs = append(errs, errors.New("url has a query or a fragment; remove it, and set token if it is a credential"))
	}
	errs = append(errs, checkTopic(c.Topic))
	if c.Token != "" && !strings.HasPrefix(c.Token, "env:") && !strings.HasPrefix(c.Token, "file:") {
		errs = append(errs, errors.New("token: want env:NAME or file:PATH"))
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the secrets that the configuration names.
func (c Config) CheckSecrets() error {
	_, err := c.token()
	return err
}

func (c Config) token() (string, error) {
	if c.Token == "" {
		return "", nil
	}
	t, err := secret.Read(c.Token)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return t, nil
}

const (
	requestTimeout = 20 * time.Second
	maxBody        = 4 << 10 // of a message, in bytes: what ntfy shows as a message and not as a file
	maxTitle       = 200
	maxAnswer      = 1 << 10
	failuresShown  = 3 // messages that are not taken, one after the other, or that wait for too long
	slow           = 5 * time.Second
)

// Gateway is a gateway that pushes.
type Gateway struct {
	name  subject.Writer
	cfg   Config
	token string
	http  *http.Client
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	open   map[*http.Request]time.Time // those that are not answered yet, and since when
	failed int                         // messages without a usable answer, one after the other
	is     contract.Condition
}

var (
	_ contract.Gateway        = (*Gateway)(nil)
	_ contract.HealthReporter = (*Gateway)(nil)
)

// New returns a gateway; an error of the configuration names its field.
func New(name subject.Writer, cfg Config, log *slog.Logger) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	token, err := cfg.token()
	if err != nil {
		return nil, err
	}
	return &Gateway{
		name: name, cfg: cfg, token: token, now: time.Now, open: map[*http.Request]time.Time{}, log: cmp.Or(log, slog.Default()).With("listener", string(name)),
		http: &http.Client{
			Timeout:       requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Name implements [contract.Listener].
func (g *Gateway) Name() subject.Writer { return g.name }

// OnStart implements [contract.Listener]; there are no inputs.
func (g *Gateway) OnStart(context.Context, contract.Emitter) error { return nil }

// OnStop implements [contract.Listener].
func (g *Gateway) OnStop(context.Context) error { return nil }

// Health implements [contract.HealthReporter].
func (g *Gateway) Health() contract.Health {
	g.mu.Lock()
	defer g.mu.Unlock()
	late, since := 0, time.Time{}
	for _, at := range g.open {
		if at = at.Add(slow); g.now().After(at) {
			if late++; late == 1 || at.Before(since) {
				since = at
			}
		}
	}
	is := g.is.Health()
	if late < failuresShown {
		return is
	}
	return contract.Worse(is, contract.Health{
		State: contract.StateDegraded, Since: since.UTC(),
		Reason: fmt.Sprintf("the push server has not answered several messages for %s", slow),
	})
}

// sends notes that a request is open until answered is called.
func (g *Gateway) sends(req *http.Request) (answered func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[req] = g.now()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, req)
	}
}

// answered notes whether the server has dealt with a message; why says what it did instead.
func (g *Gateway) answered(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if why == "" {
		g.failed = 0
		g.is.Set(contract.StateOK, "")
		return
	}
	if g.failed++; g.failed < failuresShown {
		return
	}
	if g.is.Set(contract.StateDegraded, why) {
		g.log.Warn("the push server does not take messages; they wait, and are tried again", "reason", why)
	}
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	req, err := g.request(ctx, m)
	if err != nil {
		return permanent(err.Error())
	}
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return g.send(req)
}

// Probe implements [contract.Gateway].
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, _ tool.Begun) tool.Result {
	if !g.cfg.Idempotent {
		return contract.NeverKnown("the push server cannot be asked what it has accepted")
	}
	req, err := g.request(ctx, m)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	if r := g.send(req); r.Success {
		return r
	}
	return tool.Failure(tool.CodeOutcomeUnknown, "the push server did not accept the repetition")
}

func (g *Gateway) request(ctx context.Context, m contract.Outgoing) (*http.Request, error) {
	topic := m.To
	if topic == "-" || topic == "" {
		topic = g.cfg.Topic
	}
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	at, err := url.JoinPath(g.cfg.URL, url.PathEscape(topic))
	if err != nil {
		return nil, err
	}
	body := m.Text
	if len(body) > maxBody {
		body = text.Cut(body, maxBody)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	req.Header.Set("Title", text.Cut(header(title(m)), maxTitle))
	req.Header.Set("Idempotency-Key", m.Key)
	if m.Link != "" {
		req.Header.Set("Click", header(m.Link))
	}
	if m.Kind == tool.KindApproval {
		req.Header.Set("Priority", "high")
	}
	if g.token != "" {
		req.Header.Set("Authorization", "Bearer "+g.token)
	}
	return req, nil
}

// checkTopic refuses names that would lead to another path than one below the URL.
func checkTopic(topic string) error {
	if topic == "." || topic == ".." {
		return fmt.Errorf("topic %q is not a name; choose another", topic)
	}
	return nil
}

func title(m contract.Outgoing) string {
	switch m.Kind {
	case tool.KindApproval:
		if m.Approval != nil {
			return "Approve " + m.Approval.Tool + "?"
		}
		return "Approve a call?"
	case tool.KindFailure:
		return "Not answered"
	case tool.KindNotice:
		return "Notice from " + string(m.Agent)
	case tool.KindAnswer:
	}
	return "Answer from " + string(m.Agent)
}

// header returns s as the value of a header.
func header(s string) string { return strings.Join(strings.Fields(strings.ToValidUTF8(s, "")), " ") }

func (g *Gateway) send(req *http.Request) tool.Result {
	answered := g.sends(req)
	resp, err := g.http.Do(req)
	answered()
	if err != nil {
		why := "no answer of the push server: " + cause(err).Error()
		if req.Context().Err() == nil { // else it was not waited for
			g.answered(why)
		}
		return tool.Failure(tool.CodeOutcomeUnknown, why)
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // only for people
	switch {
	case resp.StatusCode/100 == 2:
		g.answered("")
		return tool.OK(map[string]int{"status": resp.StatusCode})
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		why := "the push server answered " + resp.Status
		g.answered(why)
		r := tool.Failure(tool.CodeFailed, why)
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			r.Metadata = map[string]any{tool.MetadataRetryAfter: s * 1000}
		}
		return r
	}
	g.answered("")
	return permanent(fmt.Sprintf("the push server answered %s: %s", resp.Status, header(string(said))))
}

// cause returns an error without the URL, which may hold a secret topic.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func permanent(why string) tool.Result {
	r := tool.Failure(tool.CodeFailed, why)
	r.Metadata = map[string]any{tool.MetadataPermanent: true}
	return r
}

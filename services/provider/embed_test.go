package provider_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/scripted"
)

// withEmbedder starts a service whose embedder is at an OpenAI-compatible server.
func withEmbedder(t *testing.T, settings provider.Settings) (*core, *openaitest.Server) {
	t.Helper()
	srv := openaitest.New(t)
	cfg := provider.Config{
		Settings: settings, Embedder: "openai/" + embedtest.Name, Retry: retry.Config{Tries: 2, Pause: time.Millisecond},
	}
	e, _, err := provider.SelectEmbedder(cfg, env("OPENAI_BASE_URL", srv.URL, "OPENAI_API_KEY", openaitest.Key))
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, natstest.Start(t), cfg, provider.Deps{Embedder: e}, scripted.New()), srv
}

// ask asks the embedder of any process.
func askEmbedder[A any](c *core, verb, body string) (a A, err error) {
	raw, err := c.caller.Request(natstest.Context(c.t), subject.Service(providerapi.EmbedderName, verb),
		providerapi.EmbedderName, []byte(body))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(raw, &a)
}

func embedText(c *core, body string) (providerapi.EmbedAnswer, error) {
	return askEmbedder[providerapi.EmbedAnswer](c, providerapi.VerbEmbed, body)
}

func TestTheServiceComputesEmbeddings(t *testing.T) {
	c, srv := withEmbedder(t, provider.Settings{Prices: budget.Prices{"openai/*": {Input: new(2.0)}}})
	srv.Embedder.Concepts = map[string][]string{"rain": {"umbrella", "forecast"}}
	v, err := embed.NewClient(c.caller).Embed(natstest.Context(t), []string{"take an umbrella", "the forecast", "an invoice"})
	if err != nil {
		t.Fatal(err)
	}
	near := func(i, j int) (sum float32) {
		for k, x := range v.Values[i] {
			sum += x * v.Values[j][k]
		}
		return sum
	}
	if v.Model != "openai/"+embedtest.Name || near(0, 1) < .8 || near(0, 2) > .5 {
		t.Errorf("%s: %f, %f", v.Model, near(0, 1), near(0, 2))
	}
	want := contract.Usage{InputTokens: 7, CostMicroUSD: 14}
	s, err := askEmbedder[providerapi.Embedder](c, providerapi.VerbStatus, "")
	if err != nil || s.Model != v.Model || *s.Usage != want || s.Price.Input != 2 || s.Reachable != nil ||
		s.Breaker.State != providerapi.Closed {
		t.Errorf("%+v, %v", s, err)
	}
	if r := c.report(); r.Embedder == nil || *r.Embedder.Usage != want || !*r.Embedder.Reachable {
		t.Errorf("the report is %+v", r.Embedder)
	}
}

func TestRequestsForEmbeddingsThatAreRefused(t *testing.T) {
	c, srv := withEmbedder(t, provider.Settings{})
	many := strings.TrimSuffix(strings.Repeat(`"a",`, providerapi.MaxTexts+1), ",")
	for body, says := range map[string]string{
		`{`: "unexpected", `{"texts":[]}`: "want 1 to", `{}`: "want 1 to", `{"texts":["a",""]}`: "texts[1] is empty",
		`{"texts":[" "]}`: "texts[0] is empty", `{"texts":[` + many + `]}`: "has 33 entries",
		`{"texts":["` + strings.Repeat("a", providerapi.MaxTextBytes+1) + `"]}`: "more than 8192 bytes",
	} {
		if _, err := embedText(c, body); !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: the error is %v, want %q", body, err, says)
		}
	}
	if n := srv.Embedder.Requests(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestFailuresOfTheEmbedderHaveCodes(t *testing.T) {
	c, srv := withEmbedder(t, provider.Settings{})
	for status, want := range map[int]error{
		http.StatusUnauthorized: bus.ErrDenied, http.StatusTooManyRequests: bus.ErrOverloaded,
		http.StatusNotFound:            bus.ErrInvalidArgument,
		http.StatusInternalServerError: bus.ErrUnavailable, http.StatusRequestEntityTooLarge: bus.ErrTooLarge,
		http.StatusGatewayTimeout: bus.ErrTimeout,
	} {
		h := func(w http.ResponseWriter, _ *http.Request) {
			openaitest.Refuse(w, status, "", "", "as the test asked")
		}
		srv.Embedder.Next(h, h)
		if _, err := embedText(c, `{"texts":["a"]}`); !errors.Is(err, want) || !strings.Contains(err.Error(), "as the test asked") ||
			strings.Contains(err.Error(), openaitest.Key) {
			t.Errorf("%d: the error is %v", status, err)
		}
		srv.Embedder.Drop()
	}
}

func TestEmbeddingsCountAgainstTheBudget(t *testing.T) {
	const worst = 16 + 1 // tokens of one letter
	c, srv := withEmbedder(t, provider.Settings{
		Prices: budget.Prices{"openai/*": {Input: new(1e6)}}, Budget: budget.Limit{USD: 2*worst + 2, Per: budget.Ever},
	})
	spent := func() int64 { return *c.report().Budget.SpentMicroUSD / 1e6 }
	if _, err := embedText(c, `{"texts":["a"]}`); err != nil || spent() != 1 {
		t.Errorf("%v, %d are spent", err, spent())
	}
	// The API began to answer, so each try may have cost as much as it can.
	garbage := func(w http.ResponseWriter, _ *http.Request) { embedtest.JSON(w, http.StatusOK, "?") }
	srv.Embedder.Next(garbage, garbage)
	if _, err := embedText(c, `{"texts":["a"]}`); err == nil || spent() != 1+2*worst {
		t.Errorf("%v, %d are spent", err, spent())
	}
	before := srv.Embedder.Requests()
	_, err := embedText(c, `{"texts":["a"]}`)
	if !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), "over_budget") || srv.Embedder.Requests() != before {
		t.Errorf("the error is %v, after %d requests", err, srv.Embedder.Requests()-before)
	}
}

func TestWithABudgetAnEmbedderWithoutAPriceIsNotAsked(t *testing.T) {
	c, srv := withEmbedder(t, provider.Settings{Budget: budget.Limit{USD: 1}})
	_, err := embedText(c, `{"texts":["a"]}`)
	if err == nil || !strings.Contains(err.Error(), "the price of model toy-embed of openai is unknown") || srv.Embedder.Requests() != 0 {
		t.Errorf("the error is %v", err)
	}
}

// Requests for embeddings reach a process that has an embedder, however many others have none.
func TestProcessesWithoutAnEmbedderAnswerNoRequestForOne(t *testing.T) {
	c, _ := withEmbedder(t, provider.Settings{})
	startOn(t, c.server, provider.Config{})
	startOn(t, c.server, provider.Config{})
	for range 20 {
		if _, err := embedText(c, `{"texts":["a"]}`); err != nil {
			t.Fatal(err)
		}
		if _, err := askEmbedder[providerapi.Embedder](c, providerapi.VerbStatus, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutAnEmbedderTheServiceSaysSo(t *testing.T) {
	c := start(t, provider.Config{})
	if _, err := embed.NewClient(c.caller).Embed(natstest.Context(t), []string{"a"}); !errors.Is(err, embed.ErrNone) {
		t.Errorf("the error is %v", err)
	}
	_, err := askEmbedder[providerapi.Embedder](c, providerapi.VerbAbsent, "")
	if !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), "SKANDHA_EMBEDDER") {
		t.Errorf("the error is %v", err)
	}
	if r := c.report(); r.Embedder != nil {
		t.Errorf("the report is %+v", r.Embedder)
	}
}

func TestRequestsInProgressAreAnsweredOnShutdown(t *testing.T) {
	c, srv := withEmbedder(t, provider.Settings{})
	began := make(chan struct{})
	srv.Embedder.Next(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		c.stop()
		embedtest.JSON(w, http.StatusOK, map[string]any{"data": []any{map[string]any{"embedding": []int{1}}}})
	})
	got := make(chan error, 1)
	go func() {
		_, err := embedText(c, `{"texts":["a"]}`)
		got <- err
	}()
	<-began
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

func TestAnEmbedderIsOnlyWhatIsNamed(t *testing.T) {
	file := provider.Config{Settings: provider.Settings{Embedder: "gemini/g"}}
	for _, c := range []struct {
		cfg  provider.Config
		env  []string
		want string // the line; "!" before an error
	}{
		{provider.Config{}, []string{"OPENAI_API_KEY", "k", "GEMINI_API_KEY", "k"}, "none: searches are lexical. SKANDHA_EMBEDDER, or"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "ollama/nomic-embed-text"}, "ollama/nomic-embed-text at 127.0.0.1:11434: SKANDHA_EMBEDDER is set"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "ollama/a/b:c", "OLLAMA_HOST", "gpu"}, "ollama/a/b:c at gpu:11434"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "ollama/a", "OLLAMA_HOST", "0.0.0.0:99"}, "at 127.0.0.1:99"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "ollama/a", "OLLAMA_HOST", ":99"}, "at 127.0.0.1:99"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "ollama/a", "OLLAMA_BASE_URL", "https://o.example.com", "OLLAMA_HOST", "x"}, "at o.example.com"},
		{provider.Config{Embedder: "local/m"}, nil, "local/m at 127.0.0.1:11434: it is configured"},
		{provider.Config{Embedder: "local/m", LocalURL: "none"}, nil, "!local_url is none"},
		{provider.Config{Embedder: "openai/m"}, nil, "!OPENAI_API_KEY is not set"},
		{provider.Config{Embedder: "openai/m"}, []string{"OPENAI_BASE_URL", "http://v:8000/v1"}, "openai/m at v:8000"},
		{provider.Config{Embedder: "openai/m", BaseURL: "http://v:1/v1"}, nil, "openai/m at v:1"},
		{provider.Config{Embedder: "openai/m", Provider: "gemini", BaseURL: "http://v:1"}, []string{"OPENAI_API_KEY", "k"}, "openai/m at api.openai.com"},
		{provider.Config{Embedder: "gemini/m", Provider: "gemini", BaseURL: "http://v:1"}, []string{"GEMINI_API_KEY", "k"}, "gemini/m at v:1"},
		{file, []string{"GOOGLE_API_KEY", "k"}, "gemini/g at generativelanguage.googleapis.com: the configuration file names it"},
		{file, nil, "!set GEMINI_API_KEY"},
		{file, []string{"SKANDHA_EMBEDDER", "none"}, "none: SKANDHA_EMBEDDER is set"},
		{provider.Config{}, []string{"SKANDHA_EMBEDDER", "anthropic/x"}, `!SKANDHA_EMBEDDER is "anthropic/x", want <provider>/<model>`},
		{provider.Config{Embedder: "openai"}, nil, `!embedder is "openai", want`},
		{provider.Config{Settings: provider.Settings{Embedder: "x/y"}}, nil, `!providers.embedder is "x/y", want`},
	} {
		e, line, err := provider.SelectEmbedder(c.cfg, env(c.env...))
		if err != nil {
			line = "!" + err.Error()
		}
		wrong, fails := strings.CutPrefix(c.want, "!")
		if fails != (err != nil) || !strings.Contains(line, wrong) || (e == nil) != (fails || strings.HasPrefix(line, "none")) {
			t.Errorf("%+v, %v: %s, want %s", c.cfg, c.env, line, c.want)
		}
	}
}

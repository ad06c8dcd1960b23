package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/embedding"
	"skandha.dev/services/provider/httpapi"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
)

// wired is a server with one of the wires, and how to reach it.
type wired struct {
	model *embedtest.Model
	cfg   embedding.Config
	// an answer with these vectors, each a JSON array
	answer func(vectors ...string) string
}

const secret = "sk-canary-0123456789abcdef"

func servers(t *testing.T) map[embedding.Wire]wired {
	t.Helper()
	o, g, l := openaitest.New(t), geminitest.New(t), embedtest.NewOllama(t)
	out := map[embedding.Wire]wired{
		embedding.OpenAI: {o.Embedder, embedding.Config{BaseURL: o.URL, APIKey: openaitest.Key}, func(vectors ...string) string {
			data := make([]string, len(vectors))
			for i, v := range vectors {
				data[i] = fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, v)
			}
			return `{"data":[` + strings.Join(data, ",") + `]}`
		}},
		embedding.Gemini: {g.Embedder, embedding.Config{BaseURL: g.URL, APIKey: geminitest.Key}, func(vectors ...string) string {
			return `{"embeddings":[{"values":` + strings.Join(vectors, `},{"values":`) + `}]}`
		}},
		embedding.Ollama: {l.Embedder, embedding.Config{BaseURL: l.URL}, func(vectors ...string) string {
			return `{"embeddings":[` + strings.Join(vectors, ",") + `]}`
		}},
	}
	for wire, w := range out {
		w.cfg.Wire, w.cfg.Name, w.cfg.Model = wire, string(wire), embedtest.Name
		w.cfg.Retry = retry.Config{Tries: 2, Pause: time.Millisecond}
		out[wire] = w
	}
	return out
}

// each runs a test for each wire.
func each(t *testing.T, test func(t *testing.T, w wired)) {
	for wire, w := range servers(t) {
		t.Run(string(wire), func(t *testing.T) { test(t, w) })
	}
}

func (w wired) new(t *testing.T) *embedding.Embedder {
	t.Helper()
	e, err := embedding.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func body(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, s)
	}
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, `{"error":{"message":"as the test asked"}}`)
	}
}

func TestVectorsAreInTheOrderOfTheTexts(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		w.model.Fixed = map[string][]float32{"a": {3, 4}, "b": {0, -2}, "漢字 \u2028 <&>": {1, 0}}
		got, err := w.new(t).Embed(t.Context(), []string{"a", "漢字 \u2028 <&>", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(got.Vectors); s != "[[0.6 0.8] [1 0] [0 -1]]" {
			t.Errorf("the vectors are %s", s)
		}
		want := contract.Usage{InputTokens: 4, Unpriced: 1}
		if w.cfg.Wire == embedding.Gemini {
			want = contract.Usage{Uncounted: 1, Unpriced: 1}
		}
		if got.Usage != want {
			t.Errorf("the usage is %+v, want %+v", got.Usage, want)
		}
	})
}

func TestATryThatFailedIsRepeated(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		w.model.Next(status(http.StatusTooManyRequests, "Retry-After", "0.05"))
		began := time.Now()
		if _, err := w.new(t).Embed(t.Context(), []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("tried again after %s, before Retry-After", took)
		}
	})
}

// failure is the error of a request that all tries of end with.
func (w wired) failure(t *testing.T, h http.HandlerFunc) *contract.Error {
	t.Helper()
	w.model.Next(h, h)
	_, err := w.new(t).Embed(natstest.Context(t), []string{"a", "b"})
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v", err)
	}
	return e
}

func TestFaults(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		for _, c := range []struct {
			name string
			h    http.HandlerFunc
			code contract.ErrorCode
			says string
		}{
			{"429", status(429), contract.ErrRateLimited, "answered 429"},
			{"long Retry-After", status(429, "Retry-After", "600"), contract.ErrRateLimited, "as the test asked"},
			{"500", status(500), contract.ErrUnavailable, "answered 500"},
			{"401", status(401), contract.ErrAuth, "as the test asked"},
			{"404", status(404), contract.ErrBadRequest, "is the model right"},
			{"redirect", status(302, "Location", "https://elsewhere.example.com"), contract.ErrBadRequest, "redirects"},
			{"HTML", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = fmt.Fprint(w, "<html>welcome</html>")
			}, contract.ErrGarbage, "text/html"},
			{"error with status 200", body(`{"error":{"message":"overloaded","type":"server_error"}}`), contract.ErrUnavailable, "overloaded"},
			{"truncated JSON", body(w.answer("[1,2]", "[3,4]")[:20]), contract.ErrGarbage, "unexpected end"},
			{"no JSON", body("hello"), contract.ErrGarbage, "invalid character"},
			{"null", body("null"), contract.ErrGarbage, "0 vectors for 2 texts"},
			{"an array", body("[]"), contract.ErrGarbage, "cannot unmarshal"},
			{"one vector", body(w.answer("[1,2]")), contract.ErrGarbage, "1 vectors for 2 texts"},
			{"three vectors", body(w.answer("[1,2]", "[1,2]", "[1,2]")), contract.ErrGarbage, "3 vectors for 2 texts"},
			{"null for NaN", body(w.answer("[1,2]", "[null,4]")), contract.ErrGarbage, "not finite"},
			{"a null vector", body(w.answer("[1,2]", "null")), contract.ErrGarbage, "not finite"},
			{"text for a number", body(w.answer("[1,2]", `["3",4]`)), contract.ErrGarbage, "cannot unmarshal"},
			{"beyond float32", body(w.answer("[1,2]", "[1e39,4]")), contract.ErrGarbage, "cannot unmarshal"},
			{"length 0", body(w.answer("[1,2]", "[0,0]")), contract.ErrGarbage, "length 0"},
			{"no numbers", body(w.answer("[1,2]", "[]")), contract.ErrGarbage, "has 0 numbers"},
			{"two dimensions", body(w.answer("[1,2]", "[1,2,3]")), contract.ErrGarbage, "the dimensions 2 and 3"},
			{"10 MB", body(w.answer("[1,2]", "["+strings.Repeat("1,", 5<<20)+"1]")), contract.ErrTooLong, "longer than"},
			{"a broken connection", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = fmt.Fprint(w, "{")
			}, contract.ErrUnavailable, "broke"},
		} {
			if e := w.failure(t, c.h); e.Code != c.code || !strings.Contains(e.Message, c.says) {
				t.Errorf("%s: the error is %+v, want %s and %q", c.name, e, c.code, c.says)
			}
			w.model.Drop() // not all are tried again
		}
	})
}

func TestASilentServerIsGivenUp(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		w.cfg.Stall, w.cfg.Retry.Tries = 30*time.Millisecond, 1
		e := w.failure(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		if e.Code != contract.ErrTimeout || !strings.Contains(e.Message, "sent nothing for 30ms") {
			t.Errorf("the error is %+v", e)
		}
	})
}

func TestTheCallersContextEndsTheRequest(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		w.model.Next(func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
			close(gone)
		})
		if _, err := w.new(t).Embed(ctx, []string{"a"}); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		select {
		case <-gone:
		case <-time.After(natstest.Patience):
			t.Error("the request goes on")
		}
	})
}

func TestAServerThatIsNotThereOpensTheBreaker(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	each(t, func(t *testing.T, w wired) {
		w.cfg.BaseURL, w.cfg.Retry = "http://"+l.Addr().String(), retry.Config{Tries: 1, TripAfter: 2}
		e := w.new(t)
		for range 3 {
			_, err = e.Embed(t.Context(), []string{"a"})
		}
		if f := adapter.Failure(err); f.Code != contract.ErrUnavailable || f.RetryInMS == 0 || !strings.Contains(f.Message, "refused") {
			t.Errorf("the error is %+v", f)
		}
		if b := e.Breaker(); b.State != "open" {
			t.Errorf("the breaker is %+v", b)
		}
		if _, err := e.Models(t.Context()); err == nil {
			t.Error("it has models")
		}
	})
}

func TestTheKeyIsInNoError(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		w.cfg.APIKey = secret
		for _, h := range []http.HandlerFunc{
			func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(http.StatusUnauthorized)
				_, _ = fmt.Fprintf(rw, `{"error":{"message":"Incorrect API key provided: %s"}}`, secret)
			},
			body(secret), body(`{"error":"` + secret + `"}`),
		} {
			if e := w.failure(t, h); strings.Contains(fmt.Sprintf("%+v", e), secret) {
				t.Errorf("the error is %+v", e)
			}
			w.model.Drop()
		}
		if s := fmt.Sprintf("%+v %#v", w.cfg, w.cfg); strings.Contains(s, secret) {
			t.Error("the configuration prints the key")
		}
	})
}

func TestModelsAreThoseOfTheServer(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		models, err := w.new(t).Models(t.Context())
		if err != nil || len(models) == 0 {
			t.Errorf("%v, %v", models, err)
		}
		if w.cfg.Wire == embedding.Ollama {
			w.cfg.Model = "absent"
			if _, err := w.new(t).Models(t.Context()); err == nil || !strings.Contains(err.Error(), "run ollama pull absent") {
				t.Errorf("the error is %v", err)
			}
		}
	})
}

func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		cfg  embedding.Config
		says string
	}{
		{embedding.Config{Wire: "x"}, `wire is "x", want openai, gemini or ollama`},
		{embedding.Config{Wire: embedding.Ollama, Name: "ollama"}, "model is missing"},
		{embedding.Config{Wire: embedding.Gemini, Name: "g", Model: "m"}, "set GEMINI_API_KEY"},
		{embedding.Config{Wire: embedding.OpenAI, Name: "o", Model: "m", BaseURL: "ftp://x"}, "base_url"},
		{embedding.Config{Wire: embedding.OpenAI, Name: "o", Model: "m", APIKey: httpapi.Key("a b")}, "api_key contains a space"},
		{embedding.Config{Wire: embedding.OpenAI, Name: "o", Model: "m", Stall: -1}, "stall"},
	} {
		if _, err := embedding.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.says)
		}
	}
}

func TestTheLengthIsOne(t *testing.T) {
	each(t, func(t *testing.T, w wired) {
		got, err := w.new(t).Embed(t.Context(), []string{"some text", "another"})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range got.Vectors {
			var sum float64
			for _, x := range v {
				sum += float64(x) * float64(x)
			}
			if len(v) != embedtest.Dimension || math.Abs(sum-1) > 1e-5 {
				t.Errorf("%d numbers, length %f", len(v), math.Sqrt(sum))
			}
		}
	})
}

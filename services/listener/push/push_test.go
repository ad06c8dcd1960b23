package push_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/push"
)

// server counts what it has accepted, by key.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	accepted map[string]int
	got      []*http.Request
	body     string
	answer   func(w http.ResponseWriter, n int)
}

func newServer(t *testing.T) *server {
	s := &server{accepted: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got, s.body = append(s.got, r), string(b)
		n := len(s.got)
		s.accepted[r.Header.Get("Idempotency-Key")]++
		answer := s.answer
		s.mu.Unlock()
		if answer != nil {
			answer(w, n)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) gateway(t *testing.T, cfg push.Config) *push.Gateway {
	t.Helper()
	cfg.URL = s.URL
	g, err := push.New("phone", cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func message() contract.Outgoing {
	return contract.Outgoing{
		Delivery: tool.Delivery{
			Kind: tool.KindApproval, To: "ops", Text: "May I?\nReally?", Link: "https://agent.example.org/#/main/s",
			Approval: &tool.Approval{Tool: "mail:send"},
		},
		Agent: "main", Session: "s", Key: "k1", Begin: func(context.Context) error { return nil },
	}
}

func TestAMessageIsPushed(t *testing.T) {
	s := newServer(t)
	t.Setenv("PUSH_TOKEN", "secret-of-the-server")
	r := s.gateway(t, push.Config{Token: "env:PUSH_TOKEN"}).Deliver(t.Context(), message())
	h := s.got[0].Header
	if !r.Success || s.got[0].URL.Path != "/ops" || s.body != "May I?\nReally?" || h.Get("Title") != "Approve mail:send?" ||
		h.Get("Click") != "https://agent.example.org/#/main/s" || h.Get("Priority") != "high" ||
		h.Get("Authorization") != "Bearer secret-of-the-server" || h.Get("Idempotency-Key") != "k1" {
		t.Errorf("%+v, %s %v %q", r, s.got[0].URL, h, s.body)
	}
}

func TestATopicIsOneNameBelowTheURL(t *testing.T) {
	s := newServer(t)
	g, err := push.New("phone", push.Config{URL: s.URL + "/base", Topic: "usual"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"ops": "/base/ops", "-": "/base/usual", "": "/base/usual", "../admin": "/base/..%2Fadmin", "a/../../b": "/base/a%2F..%2F..%2Fb",
		"%2e%2e": "/base/%252e%252e", "a?b#c": "/base/a%3Fb%23c", "..": "", ".": "",
	} {
		s.got = nil
		m := message()
		m.To = to
		switch r := g.Deliver(t.Context(), m); {
		case want == "" && (r.Success || len(s.got) > 0 || r.Metadata[tool.MetadataPermanent] != true):
			t.Errorf("%q: %+v after %d requests", to, r, len(s.got))
		case want != "" && (!r.Success || s.got[0].URL.EscapedPath() != want):
			t.Errorf("%q: %+v, want %s, got %v", to, r, want, s.got)
		}
	}
}

func TestWhatAPushServerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer    func(w http.ResponseWriter, n int)
		code      tool.Code
		permanent bool
		retry     any
	}{
		"too many": {func(w http.ResponseWriter, _ int) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, tool.CodeFailed, false, 7000},
		"broken":    {func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusServiceUnavailable) }, tool.CodeFailed, false, nil},
		"forbidden": {func(w http.ResponseWriter, _ int) { http.Error(w, "no\x1b[2J rights", http.StatusForbidden) }, tool.CodeFailed, true, nil},
		"elsewhere": {func(w http.ResponseWriter, _ int) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) }, tool.CodeFailed, true, nil},
		"no answer": {func(http.ResponseWriter, int) { panic(http.ErrAbortHandler) }, tool.CodeOutcomeUnknown, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.answer = c.answer
			r := s.gateway(t, push.Config{}).Deliver(t.Context(), message())
			if r.Error == nil || r.Error.Code != c.code || (r.Metadata[tool.MetadataPermanent] == true) != c.permanent ||
				r.Metadata[tool.MetadataRetryAfter] != c.retry || strings.Contains(r.Error.Message, s.URL) {
				t.Errorf("%+v %+v", r.Error, r.Metadata)
			}
		})
	}
}

func TestAServerThatDoesNotAnswerIsShown(t *testing.T) {
	s := newServer(t)
	g := s.gateway(t, push.Config{})
	var status atomic.Int64
	s.answer = func(w http.ResponseWriter, _ int) {
		now := int(status.Load())
		if now == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(now)
	}
	for i, c := range []struct {
		status int
		shown  contract.State
		reason string
	}{
		{200, contract.StateOK, ""},
		{0, contract.StateOK, ""},
		{502, contract.StateOK, ""},
		{0, contract.StateDegraded, "no answer of the push server: "},
		{503, contract.StateDegraded, "the push server answered 503"},
		{404, contract.StateOK, ""}, // of this topic
		{0, contract.StateOK, ""},
	} {
		status.Store(int64(c.status))
		g.Deliver(t.Context(), message())
		if h := g.Health(); h.State != c.shown || !strings.HasPrefix(h.Reason, c.reason) || strings.Contains(h.Reason, s.URL) {
			t.Errorf("after message %d: %+v, want %s", i, h, c.shown)
		}
	}
}

func TestAProbeRepeatsOnlyWhatTheServerRecognizes(t *testing.T) {
	s := newServer(t)
	if r := s.gateway(t, push.Config{}).Probe(t.Context(), message(), tool.Begun{}); r.Error == nil ||
		r.Error.Code != tool.CodeOutcomeUnknown || len(s.got) > 0 {
		t.Errorf("%+v after %d requests", r, len(s.got))
	}
	if r := s.gateway(t, push.Config{Idempotent: true}).Probe(t.Context(), message(), tool.Begun{}); !r.Success ||
		s.accepted["k1"] != 1 {
		t.Errorf("%+v, %v", r, s.accepted)
	}
}

func TestNothingLeavesThatMayNotBegin(t *testing.T) {
	s := newServer(t)
	m := message()
	m.Begin = func(context.Context) error { return context.Canceled }
	if r := s.gateway(t, push.Config{}).Deliver(t.Context(), m); r.Success || len(s.got) > 0 {
		t.Errorf("%+v after %d requests", r, len(s.got))
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		want string
		cfg  push.Config
	}{
		{"url is", push.Config{URL: "push.example.org"}},
		{"topic \"..\" is not a name", push.Config{URL: "https://push.example.org", Topic: ".."}},
		{"token: ", push.Config{URL: "https://push.example.org", Token: "plain"}},
		{"url has a user; remove it, and set token", push.Config{URL: "http://ann:HUSH@push.example.org/"}},
		{"url has a query or a fragment", push.Config{URL: "http://push.example.org/?auth=HUSH"}},
		{"url has a query or a fragment", push.Config{URL: "http://push.example.org/#HUSH"}},
		{"url is", push.Config{URL: "ftp://ann:HUSH@push.example.org/"}},
	} {
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "HUSH") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

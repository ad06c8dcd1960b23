package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

func TestRequestsAreLimitedPerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Limits = access.Limits{Requests: 2, Burst: 3}
		r := newRig(t, cfg, "")
		ask := func(token string) *httptest.ResponseRecorder {
			return r.ask(http.MethodGet, "/v1/x", "", bearer(token))
		}
		for i := range 3 {
			if w := ask(botToken); w.Code != 200 {
				t.Fatalf("request %d is answered %d", i+1, w.Code)
			}
		}
		w := ask(botToken)
		e := refusal(t, w)
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || e.Code != contract.CodeRateLimited || e.RetryAfterMS != 500 {
			t.Errorf("too many are answered %d, after %s s: %+v", w.Code, w.Header().Get("Retry-After"), e)
		}
		if w := ask(ownerToken); w.Code != 200 {
			t.Errorf("another token is answered %d", w.Code)
		}
		time.Sleep(500 * time.Millisecond)
		if w := ask(botToken); w.Code != 200 {
			t.Errorf("after the time that was said it is answered %d", w.Code)
		}
		if n := r.Counters()["uibridge_refused_rate"]; n != 1 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

func TestOpenRequestsAreLimited(t *testing.T) {
	cfg := usual()
	cfg.Tokens = append(cfg.Tokens, access.Token{Name: "third", Token: "third-0123456789"})
	cfg.Limits = access.Limits{Connections: 2, AllConnections: 3}
	r := newRig(t, cfg, "")
	in, out := make(chan struct{}), make(chan struct{})
	r.then = func(http.ResponseWriter, *http.Request) { in <- struct{}{}; <-out }
	var all sync.WaitGroup
	hold := func(token string) {
		all.Go(func() { r.ask(http.MethodGet, "/v1/x", "", bearer(token)) })
		<-in
	}
	code := func(token string) int { return r.ask(http.MethodGet, "/v1/x", "", bearer(token)).Code }
	hold(botToken)
	hold(botToken)
	if got := code(botToken); got != 429 {
		t.Errorf("a third of one token is answered %d", got)
	}
	hold(ownerToken)
	if got := code("third-0123456789"); got != 429 {
		t.Errorf("a fourth of all is answered %d", got)
	}
	if n := r.Counters()["uibridge_connections"]; n != 3 {
		t.Errorf("%d are open", n)
	}
	close(out)
	all.Wait()
	r.then = nil
	if got := code(botToken); got != 200 {
		t.Errorf("when they have gone it is answered %d", got)
	}
	if n := r.Counters()["uibridge_connections"]; n != 0 {
		t.Errorf("%d are open in the end", n)
	}
}

func TestOpenConnectionsEndWithTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Tokens[0].Expires.Time = time.Now().Add(time.Hour)
		r := newRig(t, cfg, "")
		r.then = func(_ http.ResponseWriter, q *http.Request) {
			if _, ok := q.Context().Deadline(); ok {
				t.Error("the end of the token is a deadline of what is asked of others")
			}
			<-q.Context().Done()
			if err := context.Cause(q.Context()); contract.ErrorOf(err).Code != contract.CodeUnauthenticated {
				t.Errorf("it ended with %v", err)
			}
		}
		begin := time.Now()
		r.ask(http.MethodGet, "/v1/x", "", bearer(botToken))
		if lived := time.Since(begin); lived != time.Hour {
			t.Errorf("it lived %s", lived)
		}
	})
}

func TestShutdownEndsStreamsAndWaitsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual(), "")
		ends := make(chan string, 3)
		finish := make(chan struct{})
		r.then = func(_ http.ResponseWriter, q *http.Request) {
			select {
			case <-q.Context().Done():
				if !errors.Is(context.Cause(q.Context()), contract.ErrGoingAway) {
					t.Errorf("it ended with %v", context.Cause(q.Context()))
				}
				ends <- q.Method + " was ended"
			case <-finish:
				ends <- q.Method + " has ended"
			}
		}
		go r.ask(http.MethodGet, "/v1/x", "", bearer(botToken))
		go r.ask(http.MethodPost, "/v1/x", "", bearer(botToken))
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- r.Shutdown(t.Context()) }()
		if got := <-ends; got != "GET was ended" {
			t.Errorf("first %s", got)
		}
		synctest.Wait()
		if w := r.ask(http.MethodGet, "/v1/x", "", bearer(botToken)); w.Code != 503 || refusal(t, w).Code != contract.CodeUnavailable {
			t.Errorf("a late one is answered %d", w.Code)
		}
		close(finish)
		if got := <-ends; got != "POST has ended" {
			t.Errorf("then %s", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		// What does not end in time is ended.
		r = newRig(t, usual(), "")
		finish = make(chan struct{})
		r.then = func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done(); ends <- "POST was ended" }
		go r.ask(http.MethodPost, "/v1/x", "", bearer(botToken))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		<-ends
	})
}

// backend counts what comes through.
type backend struct {
	contract.Backend
	calls map[string]int
}

func (b backend) Submit(context.Context, contract.Principal, contract.Submission) (contract.Receipt, error) {
	b.calls["submit"]++
	return contract.Receipt{}, nil
}

func (b backend) Confirm(context.Context, contract.Principal, contract.Answer) (contract.Receipt, error) {
	b.calls["confirm"]++
	return contract.Receipt{}, nil
}

func (b backend) Cancel(context.Context, contract.Principal, contract.Cancellation) (contract.Receipt, error) {
	b.calls["cancel"]++
	return contract.Receipt{}, nil
}

func (b backend) Attach(context.Context, contract.Principal, contract.Attachment) (contract.Feed, error) {
	b.calls["attach"]++
	return nil, nil //nolint:nilnil // nobody looks
}

func (b backend) Methods() map[string]contract.Method {
	return map[string]contract.Method{"look": {Name: "look", Right: contract.See, Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) {
		b.calls["look"]++
		return nil, nil
	}}}
}

func TestWhatComesOverAnOpenConnectionIsLimitedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Limits = access.Limits{Requests: 1, Burst: 8, Inputs: 8} // two inputs at once
		r := newRig(t, cfg, "")
		b := backend{calls: map[string]int{}}
		l := r.Limit(b)
		p := principal(t, r.ask(http.MethodGet, "/v1/auth/me", "", bearer(botToken)))
		ctx := t.Context()
		code := func(err error) contract.Code {
			if err == nil {
				return ""
			}
			return contract.ErrorOf(err).Code
		}
		submit := func() contract.Code { _, err := l.Submit(ctx, p, contract.Submission{}); return code(err) }
		for range 2 {
			if got := submit(); got != "" {
				t.Errorf("an input is answered %s", got)
			}
		}
		if got := submit(); got != contract.CodeRateLimited {
			t.Errorf("a third input at once is answered %q", got)
		}
		_, err1 := l.Confirm(ctx, p, contract.Answer{})
		_, err2 := l.Cancel(ctx, p, contract.Cancellation{})
		_, err3 := l.Attach(ctx, p, contract.Attachment{})
		_, err4 := l.Methods()["look"].Call(ctx, p, nil)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Errorf("who may say nothing now may do nothing else either: %v", err)
		}
		_, _ = l.Cancel(ctx, p, contract.Cancellation{})
		for what, err := range map[string]error{
			"attach": second(l.Attach(ctx, p, contract.Attachment{})), "confirm": second(l.Confirm(ctx, p, contract.Answer{})),
			"cancel": second(l.Cancel(ctx, p, contract.Cancellation{})), "look": second(l.Methods()["look"].Call(ctx, p, nil)),
		} {
			if code(err) != contract.CodeRateLimited {
				t.Errorf("a ninth request, %s, is answered %v", what, err)
			}
		}
		time.Sleep(time.Minute)
		if got := submit(); got != "" {
			t.Errorf("after a minute an input is answered %s", got)
		}
		if b.calls["submit"] != 3 || b.calls["look"] != 1 {
			t.Errorf("what came through: %v", b.calls)
		}
		for about, p := range map[string]contract.Principal{
			"nobody": {}, "a stranger": {Name: "x", Rights: contract.AllRights()}, "one whose time is over": {Name: "bot", Expires: time.Now()},
		} {
			if _, err := l.Submit(ctx, p, contract.Submission{}); code(err) != contract.CodeUnauthenticated {
				t.Errorf("%s is answered %v", about, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

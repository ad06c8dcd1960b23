package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/internal/logburst"
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
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || e.Code != contract.CodeRateLimited ||
			e.RetryAfterMS != 500 {
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
		if w := r.ask(http.MethodGet, "/v1/x", "", bearer(botToken)); w.Code != 503 ||
			refusal(t, w).Code != contract.CodeUnavailable {
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

// backend counts the calls that reach it.
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
	return map[string]contract.Method{"look": {
		Name: "look", Right: contract.See,
		Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) {
			b.calls["look"]++
			return nil, nil
		},
	}}
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
		for range 3 {
			_, _ = l.Methods()["look"].Call(ctx, p, nil)
		}
		for what, err := range map[string]error{
			"attach": second(l.Attach(ctx, p, contract.Attachment{})), "look": second(l.Methods()["look"].Call(ctx, p, nil)),
		} {
			if code(err) != contract.CodeRateLimited {
				t.Errorf("a ninth request, %s, is answered %v", what, err)
			}
		}
		time.Sleep(time.Minute)
		if got := submit(); got != "" {
			t.Errorf("after a minute an input is answered %s", got)
		}
		if b.calls["submit"] != 3 || b.calls["look"] != 4 {
			t.Errorf("what came through: %v", b.calls)
		}
		for about, p := range map[string]contract.Principal{
			"nobody": {}, "a stranger": {Name: "x", Rights: contract.AllRights()},
			"one whose time is over": {Name: "bot", Expires: time.Now()},
		} {
			if _, err := l.Submit(ctx, p, contract.Submission{}); code(err) != contract.CodeUnauthenticated {
				t.Errorf("%s is answered %v", about, err)
			}
		}
	})
}

// A client over its limit does not flood the log.
func TestRefusalsOverALimitAreLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Limits = access.Limits{Requests: 1, Burst: 1}
		r := newRig(t, cfg, "")
		for range 101 {
			r.ask(http.MethodGet, "/v1/x", "", bearer(botToken))
		}
		time.Sleep(logburst.Window)
		synctest.Wait()
		if got := r.log.String(); strings.Count(got, "request refused") != 2 || !strings.Contains(got, "suppressed=98") {
			t.Errorf("it has logged\n%s", got)
		}
		time.Sleep(logburst.Window) // nothing is left
	})
}

// A flood of inputs, over HTTP or an open connection, does not prevent approvals, denials
// and cancels. Decisions have a separate limit, which their refusal names.
func TestDecisionsAreLimitedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Limits = access.Limits{Requests: 1, Burst: 2, Inputs: 4, Decisions: 8} // two decisions at once
		r := newRig(t, cfg, "")
		const session = "/v1/agents/main/sessions/s/"
		post := func(path string) *httptest.ResponseRecorder {
			return r.ask(http.MethodPost, path, "{}", bearer(botToken))
		}
		exhaust := func(path, field string) {
			t.Helper()
			w := post(path)
			for w.Code == 200 {
				w = post(path)
			}
			if e := refusal(t, w); w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(e.Message, field) {
				t.Errorf("too many of %s are answered %d %+v", path, w.Code, e)
			}
		}
		exhaust(session+"inputs", "raise ui.limits.requests")
		for _, path := range []string{session + "confirmations", "/v1/rpc/cancelTurn"} {
			if w := post(path); w.Code != 200 {
				t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
			}
		}
		for _, path := range []string{session + "cancels", "/v1/rpc/provideConfirmation"} {
			exhaust(path, "try again in 7.5s, or raise ui.limits.decisions")
		}

		b := backend{calls: map[string]int{}}
		l := r.Limit(b)
		p := contract.Principal{Name: "bot", Rights: contract.AllRights()}
		var err error
		for err == nil {
			_, err = l.Submit(t.Context(), p, contract.Submission{})
		}
		if !strings.Contains(err.Error(), "raise ui.limits.inputs") {
			t.Errorf("too many inputs are answered %v", err)
		}
		for err = nil; err == nil; {
			_, err = l.Methods()["look"].Call(t.Context(), p, nil)
		}
		_, err1 := l.Confirm(t.Context(), p, contract.Answer{})
		_, err2 := l.Cancel(t.Context(), p, contract.Cancellation{})
		if err := errors.Join(err1, err2); err != nil {
			t.Errorf("a decision is answered %v", err)
		}
		if _, err := l.Cancel(t.Context(), p, contract.Cancellation{}); err == nil ||
			!strings.Contains(err.Error(), "raise ui.limits.decisions") {
			t.Errorf("a third decision at once is answered %v", err)
		}
	})
}

// Neither do open requests, however many.
func TestDecisionsHaveRoomBesideOpenRequests(t *testing.T) {
	cfg := usual()
	cfg.Limits = access.Limits{Connections: 1}
	r := newRig(t, cfg, "")
	in, out := make(chan struct{}), make(chan struct{})
	r.then = func(_ http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet {
			in <- struct{}{}
			<-out
		}
	}
	var held sync.WaitGroup
	held.Go(func() { r.ask(http.MethodGet, "/v1/x", "", bearer(botToken)) })
	<-in
	if w := r.ask(http.MethodPost, "/v1/agents/main/sessions/s/inputs", "{}", bearer(botToken)); w.Code != 429 {
		t.Errorf("an input is answered %d", w.Code)
	}
	if w := r.ask(http.MethodPost, "/v1/agents/main/sessions/s/cancels", "{}", bearer(botToken)); w.Code != 200 {
		t.Errorf("a cancel is answered %d %s", w.Code, w.Body)
	}
	close(out)
	held.Wait()
}

func second[T any](_ T, err error) error { return err }

// Wrong guesses slow down the guesser, and never lock out a secret that cannot be guessed.
func TestGuessingLocksNobodyElseOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = "long-0123456789abcdef0123456789abcdef"
		cfg := usual()
		cfg.Tokens = append(cfg.Tokens, access.Token{Name: "long", Token: long})
		r := newRig(t, cfg, "")
		try := func(code, addr string) int {
			return r.ask(http.MethodPost, "/v1/auth/code", `{"code": "`+code+`"}`, from(addr)).Code
		}
		token := func(token, addr string) int {
			return r.ask(http.MethodGet, "/v1/x", "", bearer(token), from(addr)).Code
		}
		codes := make([]string, 2)
		for i := range codes {
			codes[i], _, _ = r.Code(t.Context())
		}
		const guesser, other = "192.0.2.1:1", "192.0.2.2:1"
		var got []int
		for range 12 {
			got = append(got, try("0000-0000-0000-0000", guesser))
		}
		if got[9] != 401 || got[10] != 429 || got[11] != 429 {
			t.Errorf("twelve wrong codes are answered %v", got)
		}
		for range 1000 { // from everywhere, many at once
			try("0000-0000-0000-0000", "[2001:db8:"+strconv.FormatInt(rand.Int64N(1<<16), 16)+"::1]:1")
		}
		if from, away := try(codes[0], guesser), try(codes[1], other); from != 200 || away != 200 {
			t.Errorf("right codes are answered %d at the guesser's address and %d elsewhere", from, away)
		}
		if from, away := token(long, guesser), token(long, other); from != 200 || away != 200 {
			t.Errorf("a long token is answered %d at the guesser's address and %d elsewhere", from, away)
		}
		// Otherwise only wrong guesses would wait, and a guesser would not mind.
		if from, away := token(botToken, guesser), token(botToken, other); from != 429 || away != 200 {
			t.Errorf("a short token is answered %d at the guesser's address and %d elsewhere", from, away)
		}
		if w := r.ask(http.MethodPost, "/v1/auth/token", `{"token": "`+botToken+`"}`, from(guesser)); w.Code != 429 {
			t.Errorf("logging in with a short token there is answered %d", w.Code)
		}
		// Addresses of one network are one.
		for range 10 {
			try("0000-0000-0000-0000", "[2001:db8:7::1]:1")
		}
		if got := try("0000-0000-0000-0000", "[2001:db8:7::2]:1"); got != 429 {
			t.Errorf("a neighbour address is answered %d", got)
		}
		time.Sleep(time.Minute)
		if got := token(botToken, guesser); got != 200 {
			t.Errorf("after a minute a short token is answered %d", got)
		}
		if got := try("0000-0000-0000-0000", guesser); got != 401 {
			t.Errorf("after a minute a wrong code is answered %d", got)
		}
	})
}

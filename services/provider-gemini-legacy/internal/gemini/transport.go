package gemini

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"skandha.dev/pkg/provider"
)

// maxFault bounds what is read of an error, in bytes.
const maxFault = 64 << 10

// exchange is what the RoundTripper adds to one request, and what it keeps of its answer.
type exchange struct {
	exact exact
	tape  *tape
}

type exchangeKey struct{}

// withExchange hands the exchange to the RoundTripper; the SDK passes on nothing else.
func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// RoundTrip implements [http.RoundTripper] for the SDK.
func (m *Model) RoundTrip(r *http.Request) (*http.Response, error) {
	defer func() { _ = r.Body.Close() }() // it is in memory
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, failure(provider.ErrInternal, "the SDK sent a request that was not asked for: %s", r.URL.Path)
	}
	sent, err := m.request(r, x.exact)
	if err != nil {
		return nil, err
	}
	resp, err := m.cfg.Transport.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	x.tape.watch.alive()
	if err := m.check(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	x.tape.play(resp.Body)
	resp.Body = x.tape
	return resp, nil
}

// request returns the SDK's request with the exact parts and the key.
func (m *Model) request(r *http.Request, e exact) (*http.Request, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		body, err = e.splice(body)
	}
	if err != nil {
		return nil, failure(provider.ErrInternal, "changing the SDK's request: %v", err)
	}
	sent := r.Clone(r.Context())
	sent.Body, sent.ContentLength, sent.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	// The SDK asks for the numbers of enums, and knows only some of them by name.
	query := sent.URL.Query()
	query.Set("$alt", "json")
	sent.URL.RawQuery = query.Encode()
	sent.Header.Set("X-Goog-Api-Key", m.cfg.APIKey)
	return sent, nil
}

// check returns why a response is not a stream of answers.
func (m *Model) check(resp *http.Response) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && media == "application/json" {
		return nil
	}
	// What could be read is worth more than the error of reading.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxFault))
	if resp.StatusCode != http.StatusOK {
		return m.refusal(resp.StatusCode, resp.Header, readFault(body))
	}
	return failure(provider.ErrGarbage, "%s", m.clean(fmt.Sprintf(
		"%s answered with %q instead of application/json; check GOOGLE_GEMINI_BASE_URL", m.host, media)))
}

// watch ends a request whose server sends nothing for too long.
type watch struct {
	limit  time.Duration
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // nil once stopped
}

// newWatch returns a context that ends with [errSilent]. [watch.stop] must follow.
func newWatch(ctx context.Context, limit time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watch{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errSilent) })}
}

// alive notes that the server has sent something.
func (w *watch) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.limit)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
	w.cancel(nil)
}

package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// maxWireBytes bounds what is read of one answer, framing included.
const maxWireBytes = 64 << 20

// maxErrorBytes bounds what is read of an error response.
const maxErrorBytes = 64 << 10

var (
	errStalled  = errors.New("the server went silent")
	errWireFull = errors.New("the stream does not end")
)

// Watchdog cancels a request whose server is silent for too long.
type Watchdog struct {
	stall  time.Duration
	mu     sync.Mutex
	timer  *time.Timer // nil once stopped
	cancel context.CancelCauseFunc
}

// Watch returns a context that ends when the server is silent for as long as stall.
// [Watchdog.Stop] must follow.
func Watch(ctx context.Context, stall time.Duration) (context.Context, *Watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Watchdog{stall: stall, cancel: cancel}
	w.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	return ctx, w
}

// alive records that a byte has arrived.
func (w *Watchdog) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.stall)
	}
}

// Stop ends the request.
func (w *Watchdog) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
	w.cancel(nil)
}

// Receive watches the body of an answer, within a limit. An error response, and one that is
// not a stream, is the error that says so.
func (w *Watchdog) Receive(resp *http.Response, api API) (*http.Response, error) {
	w.alive()
	if resp.StatusCode >= 300 {
		return nil, api.Status(resp.StatusCode, resp.Header, ParseFault(readSome(resp)), time.Now())
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && (media == "application/json" || media == "text/html") {
		return nil, api.noStream(resp, media)
	}
	if resp.Request != nil {
		adapter.Began(resp.Request.Context())
	}
	resp.Body = &watchedBody{ReadCloser: resp.Body, watchdog: w, left: maxWireBytes}
	return resp, nil
}

// noStream explains a response that is not an event stream: an error that came
// with status 200, or the page of a proxy.
func (a API) noStream(resp *http.Response, media string) error {
	if f := ParseFault(readSome(resp)); f.Known() {
		return a.InStream(f)
	}
	return adapter.Errorf(contract.ErrGarbage,
		"the server answered with %s instead of text/event-stream: does base_url end where the API begins%s?",
		media, a.Hint)
}

func readSome(resp *http.Response) []byte {
	defer func() { _ = resp.Body.Close() }()
	// The part that could be read is worth more than the read error.
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	return b
}

type watchedBody struct {
	io.ReadCloser
	watchdog *Watchdog
	left     int64
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errWireFull
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	if n > 0 {
		b.left -= int64(n)
		b.watchdog.alive()
	}
	return n, err
}

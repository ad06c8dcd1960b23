package openai

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/openai/openai-go/v3/option"

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

// watchdog cancels a request whose server is silent for too long.
type watchdog struct {
	stall  time.Duration
	mu     sync.Mutex
	timer  *time.Timer // nil once stopped
	cancel context.CancelCauseFunc
}

func watch(ctx context.Context, stall time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{stall: stall, cancel: cancel}
	w.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	return ctx, w
}

// alive records that a byte has arrived.
func (w *watchdog) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.stall)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
	w.cancel(nil)
}

// intercept handles every response before the SDK does: it reads errors of any shape,
// within a limit, and watches the body of an answer.
func (a *Adapter) intercept(w *watchdog) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(req)
		if err != nil {
			return resp, err
		}
		w.alive()
		if resp.StatusCode >= 300 {
			return nil, a.refusal(resp)
		}
		media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if err == nil && (media == "application/json" || media == "text/html") {
			return nil, a.noStream(resp, media)
		}
		resp.Body = &watchedBody{ReadCloser: resp.Body, watchdog: w, left: maxWireBytes}
		return resp, nil
	}
}

// refusal reads an error response.
func (a *Adapter) refusal(resp *http.Response) error {
	body := readSome(resp)
	return a.statusError(resp.StatusCode, resp.Header, parseFault(body), time.Now())
}

// noStream explains a response that is not an event stream: an error that came
// with status 200, or the page of a proxy.
func (a *Adapter) noStream(resp *http.Response, media string) error {
	if f := parseFault(readSome(resp)); f.known() {
		return a.faultError(f)
	}
	return adapter.Errorf(contract.ErrGarbage,
		"the server answered with %s instead of text/event-stream: does base_url end where the API begins (usually /v1)?",
		media)
}

func readSome(resp *http.Response) []byte {
	defer func() { _ = resp.Body.Close() }()
	// The part that could be read is worth more than the read error.
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	return b
}

type watchedBody struct {
	io.ReadCloser
	watchdog *watchdog
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

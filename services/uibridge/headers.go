package uibridge

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"time"
)

// pagePolicy is what the page may do: load what lies beside it, and talk to where it
// comes from. Nothing that a model or a tool has written can run, or phone home.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured sets the headers that every answer has, unless its handler is stricter.
func secured(tls bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()")
		if tls {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// recovered answers for a handler that panics.
func recovered(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				log.Error("a handler has panicked", "panic", v, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler) // nothing can be said any more: it may have begun to answer
		}()
		next.ServeHTTP(w, r)
	})
}

// How long a client may take to send a body, and to take an answer that is no stream.
const (
	bodyWait   = 30 * time.Second
	answerWait = 2 * time.Minute
)

// paced bounds how long a client may take to send its body. The bound ends with the
// body, or when the connection becomes a WebSocket's, because what is answered may be a
// stream. What handlers bound of an answer
// ends with it: net/http leaves it to the connection's next one.
func paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{}) // a writer without deadlines has none to end
		if r.ContentLength != 0 {
			if err := rc.SetReadDeadline(time.Now().Add(bodyWait)); err == nil {
				r.Body = &body{r.Body, rc}
			}
		}
		next.ServeHTTP(w, r)
	})
}

type body struct {
	io.ReadCloser
	rc *http.ResponseController
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = b.rc.SetReadDeadline(time.Time{}) // what follows is not the body's
	}
	return n, err
}

// brief bounds how long a client may take to take an answer.
func brief(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWait)) // not every writer has one
		next.ServeHTTP(w, r)
	})
}

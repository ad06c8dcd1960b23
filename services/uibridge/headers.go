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

// pagePolicy lets the page load only files from its own origin, and connect only there.
// Nothing that a model or a tool has written can run scripts or send data elsewhere.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured sets the headers of every answer. A handler may set stricter ones.
func secured(tls bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy",
			"accelerometer=(), camera=(self), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(self), "+
				"midi=(), payment=(), usb=()")
		if tls {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// recovered logs a panic of a handler, and closes the connection.
func recovered(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				log.Error("a handler panicked", "panic", v, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler) // too late for an error answer: part of one may have been sent
		}()
		next.ServeHTTP(w, r)
	})
}

// The time that a client has to send a body, and to read an answer that is not a stream.
const (
	bodyWait   = 30 * time.Second
	answerWait = 2 * time.Minute
)

// paced bounds the time that a client has to send its body. The deadline ends with the
// body, or when the connection becomes a WebSocket, because the answer may be a stream. A
// write deadline that a handler has set ends before the next request: net/http would keep
// it for the whole connection.
func paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{}) // not every writer supports deadlines
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
		_ = b.rc.SetReadDeadline(time.Time{}) // what follows is not part of the body
	}
	return n, err
}

// brief bounds the time that a client has to read an answer.
func brief(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not every writer supports deadlines
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWait))
		next.ServeHTTP(w, r)
	})
}

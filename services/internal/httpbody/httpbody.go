// Package httpbody makes sure that a client that sends too large a body can read the
// answer.
//
// If a server answers 413 and closes the connection while the client is still sending, the
// connection is reset, and the answer is lost as soon as the unread data exceeds the
// buffers. So the rest of the body is read first and discarded, within bounds.
package httpbody

import (
	"io"
	"net/http"
	"time"
)

// The bounds of what is read and discarded.
const (
	maxBytes = 256 << 20
	maxTime  = 5 * time.Second
)

// Drain reads what next leaves of the request's body before the answer is sent.
func Drain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body // next may wrap it
		next.ServeHTTP(w, r)
		// A client that waits for 100 Continue has sent nothing of the body.
		if body == nil || body == http.NoBody || r.ContentLength == 0 ||
			r.ContentLength > maxBytes || r.Header.Get("Expect") != "" {
			return
		}
		if http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxTime)) != nil {
			return // the read would be unbounded
		}
		_, _ = io.CopyN(io.Discard, body, maxBytes) // an error ends only the client's connection
	})
}

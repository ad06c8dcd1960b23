package httpbody_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"skandha.dev/services/internal/httpbody"
)

// A client that writes all it has before it reads gets the answer.
func TestAPlainClientReadsTheRefusal(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1000)
		if _, err := r.Body.Read(make([]byte, 2000)); err == nil {
			_, _ = r.Body.Read(make([]byte, 2000))
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	srv := httptest.NewServer(httpbody.Drain(refuse))
	defer srv.Close()
	const size = 100 << 20
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	for sent := 0; sent < size; {
		n, err := c.Write(make([]byte, 64<<10))
		if err != nil {
			t.Fatalf("after %d bytes: %v", sent, err)
		}
		sent += n
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}

package eventstream_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"skandha.dev/services/uibridge/eventstream"
)

func TestEvents(t *testing.T) {
	r := httptest.NewRecorder()
	s := eventstream.New(r, time.Second)
	if s.Begun() || r.Header().Get("Content-Type") != "" {
		t.Error("it has begun before anything was sent")
	}
	for _, data := range []string{`{"a":1}`, "two\r\nlines", ""} {
		if err := s.Data([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.KeepAlive(); err != nil || !s.Begun() {
		t.Fatal(err)
	}
	want := "data: {\"a\":1}\n\ndata: two\ndata: lines\n\ndata: \n\n: still here\n\n"
	if got := r.Body.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.Header().Get("Content-Type"); got != "text/event-stream" ||
		r.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers are %v", r.Header())
	}
}

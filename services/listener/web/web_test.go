package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skandha.dev/services/listener/web"
	"skandha.dev/services/test/natstest"
)

// A page whose name was resolved anew to this machine still says its own name.
func TestOnlyOwnNamesAreAnswered(t *testing.T) {
	h := web.Config{
		Hosts: []string{"Agent.example.org"},
	}.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for host, want := range map[string]int{
		"localhost": 204, "LOCALHOST:8090": 204, "127.0.0.1:1": 204, "[::1]:8090": 204, "[::1]": 204, "127.0.0.2": 204,
		"agent.example.org": 204, "agent.example.org:443": 204,
		"": 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"x.agent.example.org": 421,
		"192.0.2.1":           421, "0.0.0.0": 421, "[::]": 421, "2130706433": 421, "localhost:80:80": 421,
		"agent.example.org.": 421,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q is answered %d, want %d", host, w.Code, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for listen, want := range map[string]bool{
		"": true, "127.0.0.1:0": true, "[::1]:80": true, "localhost:80": true, ":80": false, "0.0.0.0:80": false,
		"[::]:80": false, "192.0.2.1:80": false, "host:80": false, "nonsense": false,
	} {
		if got := (web.Config{Listen: listen}).Loopback(); got != want {
			t.Errorf("%q is loopback: %t, want %t", listen, got, want)
		}
	}
}

func TestACertificateThatIsNotThereIsTold(t *testing.T) {
	c := web.Config{Listen: "127.0.0.1:0", TLSCert: "/no/such/cert.pem", TLSKey: "/no/such/key.pem"}
	s, err := web.Start(natstest.Context(t), c, http.NotFoundHandler(), natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-s.Failed(); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("it failed with %v", err)
	}
}

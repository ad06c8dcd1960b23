package transporttest

import (
	"net/http"
	"net/http/cookiejar"
	"sync"
	"testing"

	"skandha.dev/services/uibridge/access"
)

// Browser returns a client that keeps both halves of a login, as the bridge's page does:
// the cookie, and the key that is sent with it. A nil transport means one like the default.
func Browser(t testing.TB, transport *http.Transport) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: &keyed{Transport: transport}}
}

// keyed keeps the key of the last login.
type keyed struct {
	*http.Transport
	mu  sync.Mutex
	key string
}

// RoundTrip implements [http.RoundTripper].
func (k *keyed) RoundTrip(q *http.Request) (*http.Response, error) {
	k.mu.Lock()
	key := k.key
	k.mu.Unlock()
	if key != "" {
		q = q.Clone(q.Context())
		q.Header.Set(access.KeyHeader, key)
	}
	res, err := k.Transport.RoundTrip(q)
	if err == nil {
		if made := res.Header.Get(access.KeyHeader); made != "" {
			k.mu.Lock()
			k.key = made
			k.mu.Unlock()
		}
	}
	return res, err
}

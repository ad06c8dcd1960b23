package transporttest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// Live is a complete system with its bridge.
type Live struct {
	*system.System
	cfg       system.Config
	URL       string // of the bridge, without a trailing slash
	Token     string // the owner's
	Workspace string
}

// Start runs a system until the test ends: an agent main with the rules of the offline
// provider, which asks before it deletes a file.
func Start(t testing.TB) *Live {
	t.Helper()
	dir := t.TempDir()
	l := &Live{cfg: system.Config{
		Data: dir, Workspace: filepath.Join(dir, "workspace"), Sync: "relaxed", Provider: "offline",
		UI: &system.UI{Listen: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))}, Log: natstest.Logger(t),
	}}
	l.start(t)
	t.Cleanup(func() { l.Stop() })
	l.Workspace, l.URL, l.Token = l.cfg.Workspace, "http://"+l.UIAddr(), l.UIToken()
	return l
}

func (l *Live) start(t testing.TB) {
	t.Helper()
	var err error
	if l.System, err = system.Start(natstest.Context(t), l.cfg); err != nil {
		t.Fatal(err)
	}
}

// Restart stops everything and starts it again, at the same address.
func (l *Live) Restart(t testing.TB) {
	t.Helper()
	l.Stop()
	l.start(t)
}

// Transport sends the owner's token.
func (l *Live) Transport() http.RoundTripper { return bearer{l.Token} }

type bearer struct{ token string }

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

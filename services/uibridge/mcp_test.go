package uibridge_test

import (
	"encoding/base64"
	"testing"
)

// MCP is behind the same access as everything else.
func TestMCPIsProtected(t *testing.T) {
	b := start(t, owned(), "")
	const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	enc := base64.RawURLEncoding.EncodeToString
	foreign := enc([]byte(`{"alg":"RS256"}`)) + "." + enc([]byte(`{"iss":"https://id.example.org","aud":"another"}`)) +
		"." + enc([]byte("x"))
	accept := "Accept: application/json, text/event-stream"
	for _, k := range []struct {
		name    string
		path    string
		headers []string
		status  int
	}{
		{"no token", "/mcp", nil, 401},
		{"a token for somebody else", "/mcp", []string{"Authorization: Bearer " + foreign}, 401},
		{"a token in the URL", "/mcp?access_token=" + ownerToken, nil, 400},
		{"another page", "/mcp", []string{"Authorization: Bearer " + ownerToken, "Origin: https://evil.example.org"}, 403},
		{"a form", "/mcp", []string{"Authorization: Bearer " + ownerToken, "Content-Type: text/plain"}, 415},
		{"another path", "/mcp/x", []string{"Authorization: Bearer " + ownerToken, accept}, 405},
		{"the owner", "/mcp", []string{"Authorization: Bearer " + ownerToken, accept}, 200},
	} {
		res := b.ask(nil, k.path, body, k.headers...)
		if res.status != k.status {
			t.Errorf("%s is answered %d %s, want %d", k.name, res.status, res.body, k.status)
		}
		if k.status == 401 && res.header.Get("WWW-Authenticate") != `Bearer realm="skandha"` {
			t.Errorf("%s: the challenge is %q", k.name, res.header.Get("WWW-Authenticate"))
		}
	}
	// The bridge accepts no access tokens of a provider, and says of none that it does.
	if res := b.ask(nil, "/.well-known/oauth-protected-resource", ""); res.status != 404 {
		t.Errorf("metadata is answered %d", res.status)
	}
}

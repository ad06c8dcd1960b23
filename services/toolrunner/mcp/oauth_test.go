package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/toolrunner/mcp"
)

// guardedServer wants a token, and says that it is obtained at an authorization server.
func guardedServer(t *testing.T, at func(own string) (issuer string)) (url string) {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "own", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "good"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return words("x"), nil, nil
	})
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	page := func(format string, args ...any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, format, args...)
		}
	}
	issuer := at(web.URL)
	mux.HandleFunc("/.well-known/oauth-protected-resource",
		page(`{"resource":%q,"authorization_servers":[%q]}`, web.URL+"/mcp", issuer))
	mux.HandleFunc("/.well-known/oauth-authorization-server", page(`{"issuer":%q,"token_endpoint":%q,`+
		`"response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`, web.URL, web.URL+"/token"))
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.FormValue("client_secret") != "" {
			id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if id != "me" || secret != "HUSH" || r.FormValue("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		page(`{"access_token":"fresh","token_type":"Bearer","expires_in":3600}`)(w, r)
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer fresh" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+web.URL+`/.well-known/oauth-protected-resource"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	return web.URL
}

func credentials(t *testing.T, url, issuer string) map[string]mcp.Server {
	t.Helper()
	t.Setenv("MCP_TEST_SECRET", "HUSH")
	return map[string]mcp.Server{"own": {
		URL: url + "/mcp", OAuth: &mcp.OAuth{Issuer: issuer, ClientID: "me", ClientSecret: "env:MCP_TEST_SECRET"},
	}}
}

func TestATokenIsObtainedWithCredentials(t *testing.T) {
	url := guardedServer(t, func(own string) string { return own })
	r := newRig(t, credentials(t, url, url))
	if got := r.text("own:good", `{}`); got != "x" {
		t.Errorf("it says %q", got)
	}
}

// The secret goes to the issuer alone, and no server leads the client to addresses inside.
func TestMetadataThatLeadsElsewhereIsRefused(t *testing.T) {
	reached := make(chan string, 99)
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	t.Cleanup(inside.Close)
	url := guardedServer(t, func(string) string { return inside.URL })
	r := newRig(t, credentials(t, url, inside.URL))
	r.logged("is not public")
	url = guardedServer(t, func(own string) string { return own })
	r = newRig(t, credentials(t, url, "https://issuer.example.com"))
	r.logged("does not match")
	if len(reached) > 0 {
		t.Errorf("it asked for %s", <-reached)
	}
}

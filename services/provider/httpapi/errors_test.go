package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/provider/httpapi"
)

// Servers differ in everything but the message.
func TestParseFault(t *testing.T) {
	for body, want := range map[string]httpapi.Fault{
		`{"error":{"message":"m","type":"t","code":"c"}}`:             {Message: "m", Type: "t", Code: "c"},
		`{"error":{"message":"m","code":429,"status":"S"}}`:           {Message: "m", Type: "S", Code: "429"},
		`{"error":{"message":"m","details":"see the docs"}}`:          {Message: "m"},
		`{"error":{"message":"m","details":{"x":1}}}`:                 {Message: "m"},
		`{"error":{"message":"m","details":[{"reason":7}]}}`:          {Message: "m"},
		`{"error":{"message":"m","details":[{"reason":"R"}]}}`:        {Message: "m", Reason: "R"},
		`{"error":{"message":"m","details":[{"retryDelay":"2.5s"}]}}`: {Message: "m", Retry: 2500 * time.Millisecond},
		`{"error":"m"}`:   {Message: "m"},
		`{"message":"m"}`: {Message: "m"},
		`{"detail":"m"}`:  {Message: "m"},
		`{}`:              {},
		`<html>`:          {},
	} {
		if got := httpapi.ParseFault([]byte(body)); got != want {
			t.Errorf("%s is %+v, want %+v", body, got, want)
		}
	}
}

// A key, or a password in an address, is in no error, wherever it comes from.
func TestSecretsAreInNoError(t *testing.T) {
	const key = "hunter2-0123"
	api := httpapi.NewAPI("http://api.test/v1", time.Second, key, "")
	said := httpapi.ParseFault([]byte(`{"error":{"message":"bad ` + key + `","type":"` + key + `","code":"` + key + `"}}`))
	now := time.Now()
	for what, err := range map[string]error{
		"a status":  api.Status(http.StatusUnauthorized, http.Header{"Location": {key}}, said, now),
		"a retry":   api.Status(http.StatusServiceUnavailable, http.Header{"Retry-After": {key}}, said, now),
		"in stream": api.InStream(said),
		"a login":   api.InStream(httpapi.Fault{Message: "log in at http://user:hunter2@proxy.test:3128 first"}),
		"a proxy": api.Explain(t.Context(), &url.Error{
			Op: "Post", URL: "http://hunter2", Err: proxyError(t, "http://user:hunter2%zz@proxy.test:3128"),
		}),
		"a proxy without a scheme": api.Explain(t.Context(), proxyError(t, "user:hunter2%zz@proxy.test")),
		"a proxy with a slash":     api.Explain(t.Context(), proxyError(t, "http://user:p/hunter2%zz@proxy.test")),
	} {
		if text := fmt.Sprintf("%+v", err); err == nil || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", what, text)
		}
	}
	for _, base := range []string{
		"http://user:hunter2@api.test/v1", "http://api.test/v1?key=hunter2", "http://api.test/v1#hunter2",
		"ftp://user:hunter2@api.test", "user:hunter2@api.test", "http://user:hunter2@api test", "?key=hunter2",
		"http://api.test:hunter2/",
	} {
		err := httpapi.CheckURL(base, "https://api.test/v1", "KEY")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", base, err)
		}
	}
}

// proxyError returns what package net/http says of a proxy's address.
func proxyError(t *testing.T, address string) error {
	t.Helper()
	_, err := url.Parse("http://" + address)
	if err == nil {
		t.Fatalf("%q is a URL", address)
	}
	return fmt.Errorf("invalid proxy address %q: %w", address, err)
}

package chroma_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/chroma"
	"skandha.dev/services/test/chromatest"
	"skandha.dev/services/test/memorytest"
)

func TestStore(t *testing.T) {
	server := chromatest.Start(t)
	prefix := prefixes()
	memorytest.Run(t, func(t *testing.T) index.Store { return open(t, server, prefix()) })
}

func TestReopen(t *testing.T) {
	server := chromatest.Start(t)
	prefix := prefixes()
	memorytest.RunReopen(t, func(t *testing.T) func() index.Store {
		place := prefix()
		return func() index.Store { return open(t, server, place) }
	})
}

func TestOutage(t *testing.T) {
	server := chromatest.Start(t)
	memorytest.RunOutage(t, open(t, server, "outage."), server.Kill, server.Run)
}

// A server that repeats the token, in a message that turns store, is not quoted.
func TestTheTokenIsInNoError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "unknown token "+r.Header.Get("X-Chroma-Token"), http.StatusUnauthorized)
	}))
	defer server.Close()
	s, err := chroma.Open(chroma.Config{URL: strings.Replace("chroma+"+server.URL, "://", "://:hunter2@", 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Wipe(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown token [token]") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v", err)
	}
}

// prefixes gives each store its own.
func prefixes() func() string {
	n := 0
	return func() string {
		n++
		return fmt.Sprintf("test%d.", n)
	}
}

func open(t *testing.T, server *chromatest.Server, prefix string) *chroma.Store {
	t.Helper()
	s, err := chroma.Open(chroma.Config{URL: "chroma+" + server.URL + "?prefix=" + prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

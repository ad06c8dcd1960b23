package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner/tools/web"
)

func TestTheDoctorSaysHowToTurnOnTheWeb(t *testing.T) {
	for _, got := range [][]finding{
		(&globals{}).configuredWeb(t.Context()), offeredWeb([]string{"math:evaluate"}),
	} {
		if len(got) != 2 || got[0].ok || got[1].ok || got[0].need || got[1].need ||
			!strings.Contains(got[0].advice, "SKANDHA_WEB_SEARCH") || !strings.Contains(got[1].advice, "SKANDHA_WEB_FETCH") {
			t.Errorf("got %+v", got)
		}
	}
	got := offeredWeb([]string{"web:fetch", "web:search"})
	if !got[0].ok || !got[1].ok {
		t.Errorf("got %+v", got)
	}
}

func TestTheDoctorExplainsASearXNGWithoutJSON(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	g := &globals{Web: web.Config{Search: "searxng", SearchURL: s.URL, Fetch: []string{"*"}}}
	got := g.configuredWeb(t.Context())
	if got[0].ok || !strings.Contains(got[0].advice, "search.formats") || !got[1].ok {
		t.Errorf("got %+v", got)
	}
}

func TestTheDoctorNamesAWrongSetting(t *testing.T) {
	for want, c := range map[string]web.Config{
		"web_search":       {Search: "gogle"},
		"web_search_url":   {Search: "searxng"},
		"EXA_API_KEY":      {Search: "exa"},
		"web_fetch":        {Fetch: []string{"*.com"}},
		"web_fetch_local:": {FetchLocal: []string{"*"}},
	} {
		t.Setenv("EXA_API_KEY", "")
		got := (&globals{Web: c}).configuredWeb(t.Context())
		var all string
		for _, f := range got {
			if f.need {
				all += f.advice
			}
		}
		if !strings.Contains(all, want) {
			t.Errorf("%+v: %q does not name %s", c, all, want)
		}
	}
}

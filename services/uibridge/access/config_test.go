package access_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Setenv("SKANDHA_TEST_WEAK", "short")
	good := access.Token{Name: "a", Token: "a-0123456789abcdef"}
	for want, cfg := range map[string]access.Config{
		"url: ":                     {URL: "agent.example.org"},
		"hosts: ":                   {Hosts: []string{"http://x"}},
		"origins: ":                 {Origins: []string{"*"}},
		"proxies: ":                 {Proxies: []string{"10.0.0.0/99"}},
		"cookie is":                 {Cookie: time.Second},
		"limits.requests":           {Limits: access.Limits{Requests: math.NaN()}},
		"limits.burst":              {Limits: access.Limits{Burst: -1}},
		"limits.inputs":             {Limits: access.Limits{Inputs: -1}},
		"limits.decisions":          {Limits: access.Limits{Decisions: -1}},
		"limits.connections":        {Limits: access.Limits{Connections: 1e9}},
		"limits.body":               {Limits: access.Limits{Body: 1}},
		"tokens[0].name":            {Tokens: []access.Token{{Token: good.Token}}},
		"is reserved for the owner": {Tokens: []access.Token{{Name: "owner", Token: good.Token}}},
		"want up to 61":             {Tokens: []access.Token{{Name: strings.Repeat("x", 62), Token: good.Token}}},
		"tokens[1].name: duplicate": {Tokens: []access.Token{good, {Name: "a", Token: "b-0123456789abcdef"}}},
		"tokens[0].token is":        {Tokens: []access.Token{{Name: "a"}}},
		"tokens[0].rights": {
			Tokens: []access.Token{{Name: "a", Token: good.Token, Rights: []contract.Right{"root"}}},
		},
		"tokens[0].agents": {Tokens: []access.Token{{Name: "a", Token: good.Token, Agents: []subject.Agent{"*"}}}},
		"owner: the environment variable SKANDHA_TEST_NONE": {Owner: "env:SKANDHA_TEST_NONE"},
		"owner: want 16":           {Owner: "env:SKANDHA_TEST_WEAK"},
		"tokens[0].token: want 16": {Owner: ownerToken, Tokens: []access.Token{{Name: "a", Token: "spaces are not allowed"}}},
		"tokens[0].token: open":    {Tokens: []access.Token{{Name: "a", Token: "file:/no/such/file"}}},
		"same token as a":          {Tokens: []access.Token{good, {Name: "b", Token: good.Token}}},
		"SKANDHA_UI_TOKEN":         {},
	} {
		_, err := access.New(cfg, access.Deps{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if err != nil && (strings.Contains(err.Error(), good.Token) || strings.Contains(err.Error(), "short")) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	if _, err := access.New(access.Config{Owner: "file:" + writeFile(t, "token", ownerToken+"\n")},
		access.Deps{}); err != nil {
		t.Error(err)
	}
	// Without an owner nobody can make one-time codes.
	a, err := access.New(access.Config{Tokens: []access.Token{good}}, access.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Code(t.Context()); err == nil {
		t.Error("a code belongs to no token")
	}
}

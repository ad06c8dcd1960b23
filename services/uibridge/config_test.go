package uibridge_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/contract"
)

func TestTheSectionIsReadStrictly(t *testing.T) {
	c, err := uibridge.ParseConfig([]byte(`
agents: {main: {}}
listeners: {}
ui:
  listen: 127.0.0.1:1
  url: https://agent.example.org
  hosts: [agent.lan]
  origins: [https://app.example.org]
  proxies: [10.0.0.0/8]
  cookie: 24h
  owner: env:X
  tokens:
    - {name: bot, token: "file:/x", rights: [see, administer], agents: [main], expires: 2030-01-01T00:00:00Z}
  limits: {requests: 1.5, burst: 2, inputs: 3, decisions: 7, connections: 4, all_connections: 5, body: 6000}
`))
	if err != nil {
		t.Fatal(err)
	}
	bot := c.Tokens[0]
	if c.Listen != "127.0.0.1:1" || c.Cookie != 24*time.Hour || bot.Rights[1] != contract.Administer ||
		!bot.Expires.Equal(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) || c.Limits.Decisions != 7 || c.Limits.Body != 6000 {
		t.Errorf("read %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{
		"ui:\n  lisen: x":                             "line 2: ui.lisen: unknown key, did you mean listen?",
		"ui:\n  limits: {request: 1}":                 "line 2: ui.limits.request: unknown key, did you mean requests?",
		"ui:\n  tokens: [{name: a, rigths: []}]":      "ui.tokens[0].rigths: unknown key, did you mean rights?",
		"ui:\n  tokens: [{name: a, expires: never}]":  `line 2: ui.tokens[0].expires is "never", want a time such as`,
		"ui:\n  cookie: 5":                            "line 2: ui.cookie is 5, want a duration",
		"ui:\n  url: 5":                               "line 2: ui.url is a number, want text",
		"iu: {}":                                      "line 1: iu: unknown key",
		"ui:\n  cookie: 5s":                           "ui.cookie is 5s",
		"ui:\n  listen: nonsense":                     `ui.listen: "nonsense": want host:port`,
		"ui:\n  tls_cert: x":                          "ui.tls_cert and tls_key must be set together",
		"ui:\n  hosts: ['*']\n  origins: [localhost]": "ui.origins",
	} {
		c, err := uibridge.ParseConfig([]byte(file))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", file, err, want)
		}
	}
	for _, file := range []string{"", "ui:\n", "ui: {}\n", "agents: {main: {}}\n"} {
		if c, err := uibridge.ParseConfig([]byte(file)); err != nil || c.Validate() != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestFlagsGoBeforeTheFile(t *testing.T) {
	file := t.TempDir() + "/config.yaml"
	writeFile(t, file, "ui: {listen: '127.0.0.1:1', url: 'https://a.example'}\n")
	t.Setenv(uibridge.TokenVar, "")
	c, err := uibridge.Flags{File: file, Port: 9}.Config()
	if err != nil || c.Listen != "127.0.0.1:1" || c.URL != "https://a.example" || c.Owner != "" {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv(uibridge.TokenVar, ownerToken)
	c, err = uibridge.Flags{File: file, Listen: "127.0.0.1:2", URL: "https://b.example"}.Config()
	if err != nil || c.Listen != "127.0.0.1:2" || c.URL != "https://b.example" || c.Owner != "env:"+uibridge.TokenVar {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = (uibridge.Flags{Port: 7070}).Config(); err != nil || c.URL != "http://127.0.0.1:7070" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err = (uibridge.Flags{File: file + "x"}).Config(); err == nil {
		t.Error("a file that is not there is none")
	}
	writeFile(t, file, "ui: {cookie: 1s}\n")
	_, err = uibridge.Flags{File: file, Listen: "nonsense", URL: "x", Port: -1}.Config()
	for _, want := range []string{
		file + ":1: ui.cookie is 1s", "--listen or SKANDHA_UI_LISTEN: ", "--url or SKANDHA_UI_URL: ",
		"--port or SKANDHA_UI_PORT is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

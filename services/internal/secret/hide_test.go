package secret_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/services/internal/secret"
)

func TestPeopleOutsideSeeNoSecrets(t *testing.T) {
	for name, args := range map[string]string{
		"a request": `{"method":"POST","url":"https://example.com/?token=HUSH&page=SHOWN","body":"{\"password\":\"HUSH\"}",
			"headers":{"Authorization":"Bearer HUSH","X-Api-Key":"HUSH","Accept":"SHOWN"}}`,
		"spellings": `{"PASSWORD":"HUSH","api_key":"HUSH","apiKey":"HUSH","x-api-key":"HUSH","privateKey":"HUSH",
			"Set-Cookie":"a=HUSH","client_secret":"HUSH","dbPasswd":"HUSH","credentials":{"user":"HUSH"},"name":"SHOWN"}`,
		"objects and lists":       `{"a":[{"b":{"refresh_token":"HUSH","c":"SHOWN"}}],"tokens":["HUSH"],"password":7788990011223}`,
		"headers in a list":       `{"headers":[{"name":"X-Auth-Token","value":"HUSH"},{"name":"Accept","value":"SHOWN"}]}`,
		"lines of headers":        `{"headers":["Authorization: Basic HUSH==","Cookie: a=HUSH; b=HUSH","Accept: SHOWN"]}`,
		"the user of an address":  `{"url":"https://ann:HUSH@example.com/SHOWN"}`,
		"a password with an @":    `{"url":"postgres://ann:HUSH@HUSH@example.com/SHOWN"}`,
		"an escaped parameter":    `{"url":"https://example.com/SHOWN?%74oken=HUSH&X-Amz-Signature=HUSH&key=HUSH"}`,
		"a fragment":              `{"url":"https://example.com/SHOWN#access_token=HUSH"}`,
		"an address in a text":    `{"text":"see https://example.com/SHOWN?token=HUSH, and more"}`,
		"a form":                  `{"body":"user=SHOWN&pass%77ord=HUSH&code=HUSH"}`,
		"a document in a string":  `{"body":" [{\"deep\": \"{\\\"secret\\\":\\\"HUSH\\\"}\", \"a\": \"SHOWN\"}]"}`,
		"a document, cut off":     `{"body":"{\"a\":\"SHOWN\",\"password\":\"HUSH HUSH"}`,
		"YAML":                    `{"content":"name: SHOWN\npassword: HUSH HUSH\nother: x"}`,
		"a shell command":         `{"command":"PGPASSWORD=HUSH psql -c SHOWN; curl -H \"Authorization: Bearer HUSH\" --token HUSH"}`,
		"JSON in a shell command": `{"command":"curl -d \"{\\\"password\\\":\\\"HUSH\\\"}\" SHOWN"}`,
		"a command line":          `{"args":["--password","HUSH","-H","X-Api-Key: HUSH","SHOWN"]}`,
		"a private key":           `{"file":"-----BEGIN EC PRIVATE KEY-----\nHUSH\n-----END EC PRIVATE KEY-----\nSHOWN"}`,
		"a web token":             `{"text":"SHOWN eyJhbGciOiJIUzI1NiJ9.HUSH.HUSH"}`,
		"an address as a name":    `{"https://a:HUSH@b/":"SHOWN"}`,
	} {
		got := secret.Hide(json.RawMessage(args))
		if strings.Contains(got, "HUSH") || strings.Contains(got, "7788990011223") || !strings.Contains(got, secret.Hidden) {
			t.Errorf("%s shows a secret: %s", name, got)
		}
		if want := strings.Count(args, "SHOWN"); strings.Count(got, "SHOWN") != want {
			t.Errorf("%s hides too much: %s", name, got)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s is not JSON: %s", name, got)
		}
	}
}

func TestWhatIsNoSecretIsShownAsItIs(t *testing.T) {
	for _, args := range []string{
		`{"n":12345678901234567890,"path":"a/b.txt","text":"<b>1 & 2</b>"}`,
		`{"body":"{ \"a\" : 1 }","key":"notes.today","url":"https://example.com/a?page=2#top"}`,
		`{"password":"","query":"a=1&b=2","text":"the secretary wrote: hello"}`,
		`{"text":"basic knowledge of bearer bonds"}`, `{}`, `[]`, `"x"`, `null`,
	} {
		if got := secret.Hide(json.RawMessage(args)); got != args {
			t.Errorf("%s is shown as %s", args, got)
		}
	}
}

func TestWhatCannotBeReadIsHidden(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 40) + `"HUSH"` + strings.Repeat("}", 40)
	for _, args := range []string{``, `{"a":`, `{} {}`, deep} {
		if got := secret.Hide(json.RawMessage(args)); strings.Contains(got, "HUSH") || !strings.Contains(got, secret.Hidden) {
			t.Errorf("%s is shown as %s", args, got)
		}
	}
}

func TestATextNamesItsSecrets(t *testing.T) {
	got := secret.HideText("it sends password=HUSH to https://ann:HUSH@example.com/x")
	if want := "it sends password=(hidden) to https://(hidden)@example.com/x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

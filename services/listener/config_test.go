package listener_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/listener"
	"skandha.dev/services/listener/cron"
)

const whole = `
agents: {main: {}}
listeners:
  http: {listen: "127.0.0.1:0", hosts: [agent.example.org]}
  stdin: {terminal: {session: t, json: true, acks: true}}
  webhook:
    issues: {secrets: [env:X], session_field: /repository/name, session_prefix: ci-, text_template: "{{.action}}", max_body: 1000, timeout: 5s}
  websocket:
    chat: {tokens: [file:/x], origins: [https://app.example.org], choose_session: true}
  cron:
    clock:
      session: daily
      zone: Europe/Berlin
      catch_up: all
      late: 5m
      entries:
        morning: {schedule: "30 8 * * mon-fri", text: "What is on?"}
        hourly: {schedule: "@hourly", text: "x", catch_up: none, session: other}
policy: []
`

func TestTheSectionIsReadAndTheOthersAreLeftAlone(t *testing.T) {
	c, err := listener.ParseConfig([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if len(c.Stdin)+len(c.Webhook)+len(c.WebSocket) != 3 || c.Cron["clock"].CatchUp != cron.CatchUpAll ||
		c.Cron["clock"].Entries["hourly"].Session != "other" || c.Webhook["issues"].MaxBody != 1000 {
		t.Errorf("read %+v", c)
	}
}

func TestTheManualIsAConfiguration(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(text)
		}
	}
	c, err := listener.ParseConfig([]byte(example.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if len(c.Stdin) == 0 || len(c.Webhook) == 0 || len(c.WebSocket) == 0 || len(c.Cron["clock"].Entries) == 0 {
		t.Errorf("read %+v", c)
	}
}

func TestAnEmptySectionIsOneAndNoneIsAnError(t *testing.T) {
	for _, file := range []string{"listeners:\n", "listeners: {}\n", "listeners:\n  cron:\n"} {
		if _, err := listener.ParseConfig([]byte(file)); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
	for _, file := range []string{"", "agents: {main: {}}\n"} {
		if _, err := listener.ParseConfig([]byte(file)); !errors.Is(err, listener.ErrNoSection) {
			t.Errorf("%q: %v, want ErrNoSection", file, err)
		}
	}
}

func TestWhatIsUnknownIsNamedWithItsLine(t *testing.T) {
	for file, want := range map[string]string{
		"listeners:\n  webhok: {}":                                        "line 2",
		"listeners:\n  webhook:\n    a:\n      sesion: x":                 "line 4",
		"listeners:\n  cron:\n    a:\n      entries:\n        e: {at: x}": "line 5",
		"listeners:\n  http: {port: 1}":                                   "line 2",
		"listeners:\n  stdin: [x]":                                        "line 2",
		"listeners: {\n":                                                  "line",
		"listner: {}\n":                                                   "line 1: listner: unknown key, did you mean listeners?",
	} {
		if _, err := listener.ParseConfig([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", file, err, want)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for section, want := range map[string]string{
		"http: {listen: nowhere}":              "listeners.http.listen",
		"http: {tls_cert: x}":                  "listeners.http.tls_cert",
		`http: {hosts: ["https://a.example"]}`: "listeners.http.hosts",
		`http: {hosts: ["a.example:80"]}`:      "listeners.http.hosts",
		"stdin: {a: {}, b: {}}":                "listeners.stdin: 2 listeners",
		"stdin: {a: {mode: later}}":            "listeners.stdin.a.mode",
		"stdin: {core: {}}":                    "reserved for core",
		"stdin: {schedule: {}}":                "reserved for core",
		`stdin: {"a b": {}}`:                   "listeners.stdin.a b",
		"webhook: {a: {session: s}}":           "listeners.webhook.a.secrets",
		"websocket: {a: {tokens: [x]}}":        "listeners.websocket.a.session",
		"cron: {a: {entries: {e: {text: x}}}}": "listeners.cron.a.entries.e.session",
		"stdin: {a: {}}\n  cron: {a: {}}":      "listeners.cron.a: listeners.stdin.a has the same name",
		"http: {listen: ':8090'}\n  webhook: {a: {session: s, insecure: true}}":          "listeners.webhook.a.insecure",
		"http: {listen: '0.0.0.0:8090'}\n  websocket: {a: {session: s, insecure: true}}": "websocket.a.insecure",
	} {
		c, err := listener.ParseConfig([]byte("listeners:\n  " + section))
		if err != nil {
			t.Errorf("%s: %v", section, err)
			continue
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", section, err, want)
		}
	}
}

func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags listener.Flags
		want  string
	}{
		"nothing":          {listener.Flags{}, "nothing to listen to"},
		"standard input":   {listener.Flags{Stdin: "lines", Agent: "main", JSON: true}, ""},
		"a file":           {listener.Flags{File: file}, ""},
		"both":             {listener.Flags{File: file, Stdin: "lines"}, "also has a listener of standard input"},
		"json alone":       {listener.Flags{File: file, JSON: true}, "--stdin NAME"},
		"a bad name":       {listener.Flags{Stdin: "a b"}, "a b"},
		"a file not there": {listener.Flags{File: file + "x"}, "no such file"},
	} {
		_, err := c.flags.Config()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

func TestAnEmailListenerNeedsItsAccount(t *testing.T) {
	const file = "listeners:\n  email:\n    inbox: {account: ACCOUNT, from: [\"*\"]}\n" +
		"email:\n  accounts:\n    agent:\n      address: a@x.org\n      password: env:P\n      imap: {host: x}\n      smtp: {host: x}\n"
	for account, want := range map[string]string{
		"agent": "", `""`: "", "other": `listeners.email.inbox.account is "other", which email.accounts does not have; it has agent`,
	} {
		c, err := listener.ParseConfig([]byte(strings.ReplaceAll(file, "ACCOUNT", account)))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", account, err, want)
		}
	}
}

package system_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

// Whatever is wrong in the file or the flags is said before anything is started, in
// the sections of services that are off, too.
func TestNothingStartsOnAWrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := write(t,
		"agents:\n  main: {confirm: 15}\nagnets: {}\nlisteners:\n  cron:\n    c: {catch_up: some}\nui:\n  url: 5\n"+
			"zzz: 1\n")
	var log bytes.Buffer
	_, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), ConfigFile: file, Provider: "nosuch", Log: slog.New(slog.NewTextHandler(&log, nil)),
		Files: filesystem.Limits{SessionFiles: -2},
	})
	want := []string{
		file + ":2: agents.main.confirm is 15, want a duration such as 15m or 30s",
		file + ":3: agnets: unknown key, did you mean agents?",
		file + `:6: listeners.cron.c.catch_up is "some", want none, last or all`,
		file + ":8: ui.url is a number, want text: put it in quotes",
		file + ":9: zzz: unknown key, want one of agents, ", "zzz:",
		"--files-session-files is -2, want",
		`provider "nosuch" is unknown, want one of offline, openai, anthropic, gemini, local`,
	}
	for _, w := range want {
		if err == nil || strings.Count(err.Error(), w) != 1 {
			t.Errorf("%v\nwant once %s", err, w)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, fs.ErrNotExist) || log.Len() > 0 {
		t.Errorf("something was started: %v, %s", err, &log)
	}
}

func TestSecretsAreCheckedWithTheFile(t *testing.T) {
	file := write(t, `agents:
  main:
    permissions: ["a b", fs.read, "c d"]
listeners:
  webhook:
    issues:
      session: s
      secrets: [not-a-secret, "env:SKANDHA_NOPE"]
  websocket:
    ws:
      session: s
      tokens: [short]
ui:
  owner: env:SKANDHA_NOPE
  tokens:
    - name: bot
      token: short
    - {name: other, token: "env:SKANDHA_NOPE"}
`)
	want := []string{
		file + `:3: agents.main.permissions[0] is "a b", want`,
		file + `:3: agents.main.permissions[2] is "c d", want`,
		file + ":8: listeners.webhook.issues.secrets[0]: want whsec_",
		file + ":8: listeners.webhook.issues.secrets[1]: the environment variable SKANDHA_NOPE is not set",
		file + ":12: listeners.websocket.ws.tokens[0]: want 16 characters",
		file + ":14: ui.owner: the environment variable SKANDHA_NOPE is not set",
		file + ":17: ui.tokens[0].token: want 16 characters",
		file + ":18: ui.tokens[1].token: the environment variable SKANDHA_NOPE is not set",
	}
	for page, n := range map[bool]int{true: len(want), false: len(want) - 3} {
		err := system.CheckConfig(file, page)
		if err == nil || strings.Count(err.Error(), "\n")+1 != n {
			t.Fatalf("page %t: %v", page, err)
		}
		for _, w := range want[:n] {
			if strings.Count(err.Error(), w) != 1 {
				t.Errorf("page %t: %v\nwant once %s", page, err, w)
			}
		}
		if strings.Contains(err.Error(), "not-a-secret") {
			t.Errorf("it quotes a secret: %v", err)
		}
	}
}

func TestAProviderThatIsNotHereIsSaidAtTheStart(t *testing.T) {
	dir := t.TempDir()
	file := write(t, "agents:\n  main: {provider: [nosuch, gemini]}\n  other: {provider: offline}\n")
	var log bytes.Buffer
	sys, err := system.Start(natstest.Context(t), system.Config{
		Data: dir, ConfigFile: file, Sync: "relaxed", Provider: "offline",
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	sys.Stop()
	got := log.String()
	for _, want := range []string{
		`agents.main.provider is \"nosuch\", which is not available yet: want one of offline, or start the plugin`,
		`agents.main.provider is \"gemini\", which is not available yet: want one of offline, or start with --provider offline,gemini`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("logged %s, want %s", got, want)
		}
	}
	if strings.Contains(got, "agents.other") {
		t.Errorf("logged %s", got)
	}
}

// An agent would read its own system's tokens, and write its own policy.
func TestAWorkspaceApartFromDataAndConfiguration(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	file := filepath.Join(dir, "config", "skandha.yaml")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(token, []byte("0123456789abcdef"), 0o600),
		os.WriteFile(file, []byte("ui: {owner: 'file:"+token+"'}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for workspace, want := range map[string]string{
		dir: "contains " + dir + "/data, ", dir + "/config": "contains " + file,
		dir + "/data/nats": "is inside " + dir + "/data, ",
		dir + "/data":      "contains " + dir + "/data, ",
	} {
		_, err := system.Start(natstest.Context(t), system.Config{
			Data: filepath.Join(dir, "data"), Workspace: workspace, ConfigFile: file, Provider: "offline",
			Log: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", workspace, err, want)
		}
	}
	_, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(t.TempDir(), "data"), Workspace: dir, ConfigFile: file, Provider: "offline",
		Log: slog.New(slog.DiscardHandler),
	})
	if want := "contains " + token; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Neither the view nor the bus says of itself on whose disk there is no space.
func TestAFullDiskIsNamedAtTheStart(t *testing.T) {
	disk := natstest.SmallDisk(t, 1)
	if err := os.WriteFile(filepath.Join(disk.Dir, "fill"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err := system.Start(natstest.Context(t), system.Config{
		Data: disk.Dir, Sync: "relaxed", Provider: "offline", Log: slog.New(slog.DiscardHandler),
	})
	if want := "the disk of " + disk.Dir + " is full: free space on it"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTheNameOfAListenerIsFoundInTheFile(t *testing.T) {
	file := write(t, "listeners:\n  webhook:\n    \"a b\": {session: s, insecure: true}\n  cron:\n    core: {}\n")
	err := system.CheckConfig(file, false)
	for _, want := range []string{file + ":3: listeners.webhook.a b: ", file + ":5: listeners.cron.core: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

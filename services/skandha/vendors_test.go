package main

import (
	"errors"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/anthropictest"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/providertest"
	"skandha.dev/services/test/scripted"
)

// A key and an address are all that a vendor needs: the agent uses tools, sees a picture, asks
// before it deletes a file, and knows in a new session, after the system was killed, what it
// heard in an old one.
func TestAVendorNeedsAKeyAndAnAddress(t *testing.T) {
	openai, anthropic, gemini := openaitest.New(t), anthropictest.New(t), geminitest.New(t)
	for name, env := range map[string][]string{
		"openai chat": {
			"OPENAI_BASE_URL=" + openai.URL, "OPENAI_API_KEY=" + openaitest.Key, "OPENAI_MODEL=" + openaitest.Model,
			"SKANDHA_EMBEDDER=openai/toy-embed",
		},
		"openai responses": {
			"OPENAI_BASE_URL=" + openai.URL, "OPENAI_API_KEY=" + openaitest.Key, "OPENAI_MODEL=" + openaitest.Model,
			"OPENAI_API=responses",
		},
		"anthropic": {
			"ANTHROPIC_BASE_URL=" + anthropic.URL, "ANTHROPIC_API_KEY=" + anthropictest.Key,
			"ANTHROPIC_MODEL=" + anthropictest.Model,
		},
		"gemini": {
			"GOOGLE_GEMINI_BASE_URL=" + gemini.URL, "GEMINI_API_KEY=" + geminitest.Key, "GEMINI_MODEL=" + geminitest.Model,
			"SKANDHA_EMBEDDER=gemini/toy-embed",
		},
	} {
		t.Run(name, func(t *testing.T) { vendor{t: t, env: env, data: t.TempDir()}.use() })
	}
}

// vendor is a system whose provider is found by its environment.
type vendor struct {
	t    *testing.T
	env  []string
	data string
}

func (v vendor) use() {
	kill := v.up()
	v.says("first", "my cat is called Tom", "my cat is called Tom")
	v.says("first", "12", `call2 math:evaluate {"expression":"1+2"} ; math:evaluate {"expression":"3*4"}`)
	red := providertest.Picture(v.t, "red.png", color.RGBA{R: 255, A: 255})
	picture := filepath.Join(v.t.TempDir(), "red.png")
	doomed := filepath.Join(v.data, "workspace", "doomed.txt")
	for path, data := range map[string][]byte{picture: red.Data, doomed: []byte("x")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			v.t.Fatal(err)
		}
	}
	v.says("first", scripted.Saw(red), "describe the files", "--file", picture)

	const deletion = `call file_system:delete_file {"path":"doomed.txt"}`
	if out, err := v.ask("first", deletion); err == nil || !strings.Contains(out, "--yes approves") {
		v.t.Errorf("nobody approved: %v\n%s", err, out)
	}
	if _, err := os.Stat(doomed); err != nil {
		v.t.Errorf("deleted without an approval: %v", err)
	}
	v.says("first", "doomed.txt", deletion, "--yes")
	if _, err := os.Stat(doomed); !errors.Is(err, os.ErrNotExist) {
		v.t.Errorf("not deleted: %v", err)
	}

	kill() // the view has not been written yet
	v.up()
	v.remembers("my cat is called Tom")
	v.says("second", `"text":"Asked: my cat is called Tom`, "what did I tell you about my cat?", "--json")
}

// remembers waits until a memory has a text.
func (v vendor) remembers(text string) {
	v.t.Helper()
	natstest.Eventually(v.t, "a memory of "+text, func() bool {
		out, err := v.command("memory", "list", "--data", v.data).CombinedOutput()
		return err == nil && strings.Contains(string(out), text)
	})
}

// up runs the system until it is killed.
func (v vendor) up() (kill func()) {
	v.t.Helper()
	cmd := v.command("up", "--data", v.data, "--ready-line", "--no-sandbox")
	_, stop := upBy(v.t, cmd)
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			v.t.Error(err)
		}
		stop()
	}
}

func (v vendor) command(args ...string) *exec.Cmd {
	cmd := command(v.t, args...)
	cmd.Env = append(cmd.Env, v.env...)
	return cmd
}

// says asks in a session, and wants a text in what is printed.
func (v vendor) says(session, want, text string, flags ...string) {
	v.t.Helper()
	if out, err := v.ask(session, text, flags...); err != nil || !strings.Contains(out, want) {
		v.t.Errorf("%s: %v, no %q in\n%s", text, err, want, out)
	}
}

func (v vendor) ask(session, text string, flags ...string) (printed string, err error) {
	v.t.Helper()
	cmd := v.command(append([]string{"ask", text, "--session", session, "--data", v.data}, flags...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

package guidefile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/guide"
	"skandha.dev/services/core/guidefile"
)

func TestAGuideWithAllSettings(t *testing.T) {
	cold := 0.2
	got, err := guidefile.Parse("ada.md", "ada", []byte(`---
name: ada
description: Counts.
temperature: 0.2
memory_policy: sliding-window
initial_memories: [It is Friday., "Bo is six: yes"]
decision: engine
provider: [openai/gpt-5, local]
tools: [calculator:evaluate]
permissions: [fs.read, "mail.*"]
ignore_agents_md: true
limits: {rounds: 3, calls: 2, tokens: 1000, cost_usd: 0.5, session_cost_usd: 2, wall: 1m, model_call: 20s, window_turns: 4}
---

# Ada

You are Ada.
`))
	want := guide.Guide{
		Name: "ada", Description: "Counts.", SystemPrompt: "# Ada\n\nYou are Ada.", Temperature: &cold,
		MemoryPolicy: guide.SlidingWindow, InitialMemories: []string{"It is Friday.", "Bo is six: yes"},
		Decision: guide.Engine, Providers: []string{"openai/gpt-5", "local"}, Tools: []string{"calculator:evaluate"},
		Permissions: []string{"fs.read", "mail.*"}, IgnoreAgentsMD: true,
		Limits: guide.Limits{
			Rounds: 3, Calls: 2, Tokens: 1000, CostUSD: 0.5, SessionCostUSD: 2, WallMS: 60_000, ModelCallMS: 20_000, WindowTurns: 4,
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = guidefile.Parse("bo.md", "bo", []byte("---\nprovider: local\nmodel: small\ntools: []\n---\nYou are Bo."))
	if err != nil || len(got.Providers) != 1 || got.Model != "small" || got.Tools == nil || got.Permissions != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every mistake is reported at once, with its line.
func TestMistakesInAGuide(t *testing.T) {
	for settings, want := range map[string]string{
		"temprature: 1":                             "a.md:2: temprature: unknown key, did you mean temperature?",
		"system_prompt: x":                          "a.md:2: system_prompt: unknown key",
		"temperature: warm":                         `a.md:2: temperature is "warm", want a number`,
		"name: a\ntemperature: 3":                   "a.md:3: temperature 3 is outside",
		"temperature: .nan":                         "a.md:2: temperature NaN",
		"name: b":                                   `a.md:2: name is "b", want "a"`,
		"memory_policy: forever":                    `a.md:2: memory_policy is "forever"`,
		"decision: perhaps":                         `a.md:2: decision is "perhaps"`,
		"provider: {a: b}":                          "a.md:2: provider is neither",
		"provider: [a, b, a]":                       `a.md:2: provider[2] names "a" a second time`,
		"provider: a/x\nmodel: y":                   `a.md:3: model is "y"`,
		"provider: a/":                              `a.md:2: provider[0] is "a/"`,
		"tools:\n- x:y\n- 7":                        "a.md:4: tools[1] is a number, want text",
		"tools: x:y":                                "a.md:2: tools is text, want a list",
		"tools:\n- x:y\n- \"\"":                     "a.md:4: tools[1] is empty",
		"permissions:":                              "a.md:2: permissions is empty",
		"permissions: [fs*]":                        `a.md:2: permissions[0] is "fs*"`,
		"limits:\n  rounds: 0":                      "a.md:3: limits.rounds is too low",
		"limits:\n  wall: 3":                        "a.md:3: limits.wall is 3, want a duration",
		"limits: {cost_usd: -1}":                    "a.md:2: limits.cost_usd is too low",
		"ignore_agents_md: perhaps":                 "a.md:2: ignore_agents_md is",
		"limits: {queue: 1}":                        "a.md:2: limits.queue: unknown key",
		"name: a\nname: a":                          "a.md:3: name: duplicate key, first on line 2",
		"description: " + strings.Repeat("x", 1025): "a.md:2: description has 1025 bytes",
		"name: [":                                   "a.md:",
		"- a":                                       "a.md:2: the file is a list, want keys and values",
	} {
		_, err := guidefile.Parse("a.md", "a", []byte("---\n"+settings+"\n---\nHello.\n"))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", settings, err, want)
		}
	}
	_, err := guidefile.Parse("a.md", "a", []byte("---\nname: b\ntemperature: 9\nx: 1\n---\n\n \n"))
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "a.md:5: the body is empty") {
		t.Errorf("an empty body: %v", err)
	}
}

func TestBuiltInGuides(t *testing.T) {
	names := guidefile.BuiltInNames()
	if want := "[coder default home researcher]"; fmt.Sprint(names) != want {
		t.Errorf("%v, want %s", names, want)
	}
	for _, name := range names {
		g, file, ok := guidefile.BuiltIn(name)
		if !ok || g.Name != name || g.Description == "" || len(g.SystemPrompt) > 2500 || len(file) == 0 {
			t.Errorf("%s: %+v", name, g)
		}
	}
	for _, name := range []string{"", "../builtin/coder", "nobody"} {
		if _, _, ok := guidefile.BuiltIn(name); ok {
			t.Errorf("%q is built in", name)
		}
	}
}

// dir is a directory of guides that a test changes.
type dir struct {
	*testing.T
	path  string
	files *guidefile.Files
}

func newDir(t *testing.T) *dir {
	path := filepath.Join(t.TempDir(), "guides")
	return &dir{t, path, guidefile.NewFiles(path)}
}

func (d *dir) write(name, content string) {
	d.Helper()
	err := errors.Join(os.MkdirAll(d.path, 0o700), os.WriteFile(filepath.Join(d.path, name), []byte(content), 0o600))
	if err != nil {
		d.Fatal(err)
	}
}

// is checks the files until nothing changes, and then compares the guide.
func (d *dir) is(name, prompt, wrong string) {
	d.Helper()
	for same := 0; same < 2; same++ {
		if d.files.Check([]string{name}) {
			same = 0
		}
	}
	got := d.files.Get(name)
	text := ""
	if got.Err != nil {
		text = got.Err.Error()
	}
	if got.Guide.SystemPrompt != prompt || got.Have != (prompt != "") || !strings.Contains(text, wrong) ||
		(text == "") != (wrong == "") {
		d.Errorf("got %q, %v, want %q, %q", got.Guide.SystemPrompt, got.Err, prompt, wrong)
	}
}

func TestAFileThatIsEdited(t *testing.T) {
	d := newDir(t)
	d.is("ada", "", "")
	d.write("ada.md", "---\n---\nOne.")
	d.is("ada", "One.", "")
	d.write("ada.md", "---\n---\nTwo.") // of the same size
	d.is("ada", "Two.", "")
	d.write("ada.md", "---\nx: 1\n---\nThree.")
	d.is("ada", "Two.", "ada.md:2: x: unknown key")
	d.write("ada.md", "")
	d.is("ada", "Two.", "ada.md:1: the file must begin")
	d.write("ada.md", "---\n---\nFour.")
	d.is("ada", "Four.", "")
	if err := os.Remove(filepath.Join(d.path, "ada.md")); err != nil {
		t.Fatal(err)
	}
	d.is("ada", "", "")
	d.write("ada.md", "---\nx: 1\n---\nFive.")
	d.is("ada", "", "ada.md:2: x: unknown key")
	if err := os.RemoveAll(d.path); err != nil {
		t.Fatal(err)
	}
	d.is("ada", "", "")
}

// A file that is still written to, or replaced, is not used before it stays the same.
func TestAHalfWrittenFile(t *testing.T) {
	d := newDir(t)
	d.write("ada.md", "---\n---\nOne. Two.")
	d.is("ada", "One. Two.", "")
	for _, content := range []string{"", "---\n---\nOne", "---\n---\nOne. Th"} {
		d.write("ada.md", content)
		if d.files.Check([]string{"ada"}) || d.files.Get("ada").Guide.SystemPrompt != "One. Two." {
			t.Errorf("%q was used: %+v", content, d.files.Get("ada"))
		}
	}
	if err := os.Remove(filepath.Join(d.path, "ada.md")); err != nil {
		t.Fatal(err)
	}
	if d.files.Check([]string{"ada"}) {
		t.Error("the guide went at once")
	}
	d.write("ada.md", "---\n---\nOne. Three.")
	d.is("ada", "One. Three.", "")
}

func TestAFileTakesPrecedenceOverABuiltInGuide(t *testing.T) {
	d := newDir(t)
	g, file, _ := guidefile.BuiltIn("home")
	d.is("home", g.SystemPrompt, "")
	d.write("home.md", strings.Replace(string(file), g.SystemPrompt, "Mine.", 1))
	d.is("home", "Mine.", "")
	d.write("coder.md", "---\nx: 1\n---\nMine.")
	d.is("coder", "", "unknown key") // not the built-in one
	if err := os.Remove(filepath.Join(d.path, "home.md")); err != nil {
		t.Fatal(err)
	}
	d.is("home", g.SystemPrompt, "")
}

func TestFilesThatAreNoGuides(t *testing.T) {
	d := newDir(t)
	secret := filepath.Join(t.TempDir(), "secret.md")
	if err := os.WriteFile(secret, []byte("---\n---\nSecret."), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write("large.md", "---\n---\n"+strings.Repeat("x", 300<<10))
	d.write("latin.md", "---\n---\nCaf\xe9")
	d.write("mark.md", "\ufeff---\r\n---\r\nBe kind.\r\nBe brief.\r\n")
	if err := errors.Join(os.Symlink(secret, filepath.Join(d.path, "out.md")),
		os.Symlink("mark.md", filepath.Join(d.path, "in.md"))); err != nil {
		t.Fatal(err)
	}
	d.is("large", "", "large.md is too large; the limit is 262144 bytes")
	d.is("latin", "", "latin.md:3: the text is not UTF-8")
	d.is("mark", "Be kind.\nBe brief.", "")
	d.is("in", "Be kind.\nBe brief.", "")
	d.is("out", "", "escapes")
	for _, name := range []string{"../secret", secret, "", "a guide"} {
		d.is(name, "", "")
		if _, _, err := guidefile.Read(d.path, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if names, err := guidefile.Names(d.path); err != nil || fmt.Sprint(names) != "[in large latin mark out]" {
		t.Errorf("%v, %v", names, err)
	}
}

// A directory that cannot be read may have a file that restricts the agent.
func TestADirectoryThatIsNone(t *testing.T) {
	d := newDir(t)
	if err := os.WriteFile(d.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.is("coder", "", "opening the directory of guides")
}

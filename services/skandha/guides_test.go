package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/executor"
)

func TestGuidesAreListedShownAndChecked(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("ada.md", "---\ndescription: Counts.\n---\nYou are Ada.\n")
	bad := write("bad.md", "---\nx: 1\n---\nHi.\n")
	home := write("home.md", "---\ndescription: Mine.\n---\nHi.\n")

	var out, faults strings.Builder
	if err := listGuides(&out, dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ada         " + good, "  Counts.\n", "coder       built in", "home        " + home, "  Mine.\n", "! " + bad + ":2: x: unknown key",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %q", &out, want)
		}
	}
	if strings.Contains(out.String(), "home        built in") {
		t.Errorf("both are listed:\n%s", &out)
	}

	for name, want := range map[string]string{
		"ada": "---\ndescription: Counts.\n---\nYou are Ada.\n", "bad": "x: 1", "coder": "You work on code", "home": "Mine.",
	} {
		out.Reset()
		if err := showGuide(&out, dir, name); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q, %v", name, &out, err)
		}
	}
	if err := showGuide(&out, dir, "codr"); err == nil || !strings.Contains(err.Error(), "did you mean coder?") {
		t.Error(err)
	}

	out.Reset()
	if err := checkGuides(&out, &faults, []string{good, bad, home}); !errors.Is(err, exitFailed) ||
		out.String() != good+": ok\n"+home+": ok\n" || !strings.HasPrefix(faults.String(), bad+":2: x: unknown key") {
		t.Errorf("%v\n%s%s", err, &out, &faults)
	}
	faults.Reset()
	if err := checkGuides(&out, &faults, []string{write("notes.txt", "")}); err == nil ||
		!strings.Contains(faults.String(), "is not named NAME.md") {
		t.Errorf("%v %s", err, &faults)
	}
	faults.Reset()
	if err := checkGuides(&out, &faults, []string{filepath.Join(dir, "none.md")}); err == nil ||
		faults.String() != filepath.Join(dir, "none.md")+" does not exist\n" {
		t.Errorf("%v %s", err, &faults)
	}
}

func TestProjectNotesAreListedWithTheGuides(t *testing.T) {
	workspace := t.TempDir()
	for content, want := range map[string]string{
		"":          "",
		"Use tabs.": "Project notes, for agents that may read them: " + filepath.Join(workspace, "AGENTS.md") + ", 9 bytes\n",
		"\x00":      "! reading \"AGENTS.md\": it is a binary file",
	} {
		if err := os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := listProject(&out, workspace); err != nil || !strings.Contains(out.String(), want) ||
			want == "" && out.Len() > 0 {
			t.Errorf("%q: %q, %v", content, &out, err)
		}
	}
	var out strings.Builder
	printProject(&out, []executor.Announcement{
		{Instance: "sandbox-1"},
		{Instance: "toolrunner-1", Host: "node-1", Project: &event.Project{Path: "AGENTS.md", Size: 1234}},
	})
	if out.String() != "project notes AGENTS.md of toolrunner-1 on node-1, 1,234 bytes\n" {
		t.Errorf("status says %q", &out)
	}
}

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSkillsAreListed(t *testing.T) {
	workspace, dir := t.TempDir(), filepath.Join(t.TempDir(), "skills")
	for name, text := range map[string]string{
		filepath.Join(workspace, "skills", "pdf"): "---\nname: pdf\ndescription: Fills forms.\n" +
			"allowed-tools: math:evaluate time:*\n---\nx",
		filepath.Join(dir, "word"): "---\nname: word\ndescription: Writes.\n---\nx",
	} {
		if err := errors.Join(os.MkdirAll(name, 0o700), os.WriteFile(filepath.Join(name, "SKILL.md"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := listSkills(&out, workspace, dir); err != nil || !strings.Contains(out.String(), "Fills forms.") ||
		!strings.Contains(out.String(), "pdf    skills/pdf/SKILL.md") ||
		!strings.Contains(out.String(), "only math:evaluate, time:*  Fills") ||
		!strings.Contains(out.String(), filepath.Join(dir, "word", "SKILL.md")) {
		t.Errorf("%s%v", &out, err)
	}
	bad := filepath.Join(dir, "word", "SKILL.md")
	if err := os.WriteFile(bad, []byte("---\nname: word\n---\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := listSkills(&out, filepath.Join(dir, "none"), dir); !errors.Is(err, exitFailed) ||
		!strings.Contains(out.String(), "! "+bad+": description has 0 characters") {
		t.Errorf("%s%v", &out, err)
	}
}

// The name of a folder, which comes with a project, cannot speak to the terminal.
func TestAFoldersNameDoesNotReachTheTerminal(t *testing.T) {
	workspace := t.TempDir()
	name := filepath.Join(workspace, "skills", "pdf\x1b]0;evil\x07")
	if err := errors.Join(os.MkdirAll(name, 0o700), os.WriteFile(filepath.Join(name, "SKILL.md"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := listSkills(&out, workspace, t.TempDir()); !errors.Is(err, exitFailed) || !strings.Contains(out.String(), "]0;evil") ||
		strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("%q %v", &out, err)
	}
}

package archtest

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

//go:embed phrases.txt
var phraseList string

// phrase is what no text of the project says.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

func phrases(t *testing.T) (out []phrase) {
	t.Helper()
	for line := range strings.Lines(phraseList) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("phrases.txt: %q has no advice after \" => \"", line)
		}
		out = append(out, phrase{regexp.MustCompile(pattern), instead})
	}
	return out
}

// written are the kinds of files that people read. The schemas, what is generated from
// them and their examples are the wire contract, and change with its version.
func written(path string) bool {
	switch filepath.Ext(path) {
	case ".go", ".md", ".js", ".html", ".py", ".sh", ".yml", ".yaml":
		return !strings.HasPrefix(path, "schemas/") && path != "deploy/docs/reference/events.md" &&
			path != "deploy/docs/reference/subjects.md" && !strings.Contains(path, "/testdata/")
	}
	return filepath.Base(path) == "Makefile" || strings.HasPrefix(path, ".ci/")
}

// The texts are plain English: no phrase of phrases.txt is in them. SKANDHA_WORDS limits the
// test to the paths that begin with it.
func TestPlainEnglish(t *testing.T) {
	root := "../../.."
	list := phrases(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() &&
			(name == ".git" || d.Name() == "node_modules" || name == "dist" || name == "bin" || name == "out" ||
				name == ".data") {
			return filepath.SkipDir
		}
		if d.IsDir() || !written(name) || !strings.HasPrefix(name, os.Getenv("SKANDHA_WORDS")) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			for _, p := range list {
				if found := p.pattern.FindString(line); found != "" {
					t.Errorf("%s:%d says %q: %s", name, n, strings.TrimSpace(found), p.instead)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/examples"
)

//go:embed go python node shell snippets
var templates embed.FS

// The errors of [Write].
var (
	ErrLanguage  = errors.New("unknown language")
	ErrName      = errors.New("invalid plugin name")
	ErrDirectory = errors.New("the directory is not empty")
)

// shared lists the files that a skeleton takes from the examples.
var shared = map[string][]string{
	"python": {"python/skandha.py"},
	"node":   {"node/skandha.mjs", "node/package-lock.json"},
	"shell":  {"shell/bus.sh"},
}

// programs get the executable bit.
var programs = []string{"plugin.py", "plugin.sh", "test.sh"}

// exampleModule is the module name in the lock file of the examples.
const exampleModule = `"name": "skandha-examples"`

// values are the variables of the templates.
type values struct {
	Name    string // of the plugin
	Tool    string // its tool's own name
	Subject string // of calls of the tool
	Hook    string // of requests to the hook
	Package string // for package managers
}

// Languages returns the languages that have a skeleton.
func Languages() []string { return []string{"go", "python", "node", "shell"} }

// Write writes the skeleton of a plugin into a directory, which it creates, and
// returns the files' paths, sorted. The errors wrap [ErrLanguage], [ErrName] and
// [ErrDirectory], in which case nothing is written.
func Write(dir, lang, name string) (files []string, err error) {
	if !slices.Contains(Languages(), lang) {
		return nil, fmt.Errorf("%w %q; want one of %s", ErrLanguage, lang, strings.Join(Languages(), ", "))
	}
	v, err := valuesOf(name)
	if err != nil {
		return nil, err
	}
	content, err := render(lang, v)
	if err != nil {
		return nil, fmt.Errorf("rendering the skeleton for %s: %w", lang, err)
	}
	old, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	if len(old) > 0 {
		return nil, fmt.Errorf("%w: %s contains %s; name a new or empty directory", ErrDirectory, dir, old[0].Name())
	}
	for file, text := range content {
		p := filepath.Join(dir, filepath.FromSlash(file))
		mode := fs.FileMode(0o644)
		if slices.Contains(programs, file) {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil { //nolint:gosec // source code
			return nil, fmt.Errorf("creating %s: %w", filepath.Dir(p), err)
		}
		if err := os.WriteFile(p, text, mode); err != nil {
			return nil, fmt.Errorf("writing the skeleton: %w", err)
		}
		files = append(files, p)
	}
	slices.Sort(files)
	return files, nil
}

func valuesOf(name string) (values, error) {
	p, err := subject.Parse[subject.Plugin](name)
	if err != nil {
		return values{}, fmt.Errorf("%w %q: want 1 to %d characters of A-Z a-z 0-9 _ -", ErrName, name, subject.MaxIDLen)
	}
	tool := name + ":greet"
	if n := len(subject.Encode(tool)); n > subject.MaxIDLen {
		return values{}, fmt.Errorf("%w %q: its tool %s has %d bytes when encoded for a subject, at most %d; "+
			"choose a shorter name",
			ErrName, name, tool, n, subject.MaxIDLen)
	}
	return values{
		Name: name, Tool: tool, Subject: subject.Tool(p, tool), Hook: subject.Hook("before_act", p),
		Package: "skandha-plugin-" + strings.ToLower(name),
	}, nil
}

// render returns the files of a skeleton by path.
func render(lang string, v values) (map[string][]byte, error) {
	out := map[string][]byte{}
	entries, err := templates.ReadDir(lang)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := templates.ReadFile(path.Join(lang, e.Name()))
		if err != nil {
			return nil, err
		}
		t, err := template.New(e.Name()).Delims("<<", ">>").Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return nil, err
		}
		// The template of a hidden file has the prefix dot-.
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		if rest, hidden := strings.CutPrefix(name, "dot-"); hidden {
			name = "." + rest
		}
		out[name] = b.Bytes()
	}
	for _, file := range shared[lang] {
		b, err := examples.Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out[path.Base(file)] = bytes.ReplaceAll(b, []byte(exampleModule), []byte(`"name": "`+v.Package+`"`))
	}
	return out, nil
}

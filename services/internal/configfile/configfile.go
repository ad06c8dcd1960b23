// Package configfile reads the one configuration file of all services. Each service
// decodes the section it owns, strictly: an unknown key, a value of another type and
// a second document are errors. All errors of a section are reported at once, each with the
// file, the line and the path of the setting.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// sections are the keys of a file, of all services.
var sections = []string{
	"agents", "policy", "people", "approvals", "hooks", "plugins", "open_sessions", "streams", "retention", "limits", "guides_dir", "notify", "audit", "listeners",
	"mqtt", "email", "mcp", "providers", "ui",
}

// Sections lists the keys that a file may have.
func Sections() []string { return slices.Clone(sections) }

// Problem is one fault in a file.
type Problem struct {
	File string // "" while it is unknown
	Line int    // 0 if the file does not mention it
	Text string // begins with the path of the setting, such as agents.main.confirm
}

func (p Problem) String() string {
	switch {
	case p.File == "" && p.Line == 0:
		return p.Text
	case p.File == "":
		return fmt.Sprintf("line %d: %s", p.Line, p.Text)
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems are all faults in a file, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// err returns nil if there are no problems. What several sections report alike is reported once.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int { return a.Line - b.Line })
	seen := map[Problem]bool{}
	return slices.DeleteFunc(p, func(one Problem) (again bool) {
		again, seen[one] = seen[one], true
		return again
	})
}

// Join merges the problems of a file's sections; other errors are kept
// as they are.
func Join(errs ...error) error {
	var all Problems
	var others []error
	for _, err := range errs {
		if p, ok := errors.AsType[Problems](err); ok {
			all = append(all, p...)
		} else {
			others = append(others, err)
		}
	}
	return errors.Join(append(others, all.err())...)
}

// Read reads the file at path, parses it and checks what was parsed; without a path it
// returns the zero T. Errors of parse and check get the file and the line of the path
// that they begin with.
func Read[T any](path string, parse func(file []byte) (T, error), check func(T) error) (T, error) {
	var zero T
	if path == "" {
		return zero, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return zero, fmt.Errorf("reading configuration: %w", err)
	}
	return Parse(path, b, parse, check)
}

// Parse is [Read] for a file that has been read.
func Parse[T any](path string, file []byte, parse func([]byte) (T, error), check func(T) error) (T, error) {
	var zero T
	c, err := parse(file)
	var wrong Problems
	if err != nil && !errors.As(err, &wrong) {
		return zero, fmt.Errorf("configuration %s: %w", path, err)
	}
	wrong = append(wrong, located(file, check(c))...)
	for i := range wrong {
		wrong[i].File = path
	}
	if err := wrong.err(); err != nil {
		return zero, err
	}
	return c, nil
}

// Decode decodes a whole file; an empty one changes nothing. If it returns an error, it still decodes
// the sections without problems, so that they can be checked, too.
func Decode(file []byte, into any) error {
	root, err := parse(file)
	if err != nil || root == nil {
		return err
	}
	if err = decode("", root, into); err != nil {
		_ = sound(root, into).Decode(into) // a duplicate key, which is among the problems
	}
	return err
}

// Section decodes one section and reports whether the file has it. Sections of other
// services are ignored, but a key that no service owns is an error.
func Section(file []byte, name string, into any) (found bool, err error) {
	root, err := parse(file)
	if err != nil || root == nil {
		return false, err
	}
	if root.Kind != yaml.MappingNode {
		return false, decode("", root, &struct{}{})
	}
	var wrong Problems
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		switch {
		case !slices.Contains(sections, key.Value):
			wrong = append(wrong, Problem{Line: key.Line, Text: unknown(key.Value, slices.Sorted(slices.Values(sections)), key.Value)})
		case key.Value == name && found:
			wrong = append(wrong, Problem{Line: key.Line, Text: name + ": duplicate key"})
		case key.Value == name:
			found = true
			if err := decode(name, root.Content[i+1], into); err != nil {
				wrong = append(wrong, err.(Problems)...) //nolint:errorlint,forcetypeassert // decode has no other errors
			}
		}
	}
	return found, wrong.err()
}

// Secrets lists the files that a configuration file names as file:PATH, and those of
// keys. Without a file, or if it cannot be read, there are none.
func Secrets(path string) (paths []string) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var doc yaml.Node
	if yaml.Unmarshal(file, &doc) != nil {
		return nil
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if p, ok := strings.CutPrefix(n.Value, "file:"); ok && n.Kind == yaml.ScalarNode {
			paths = append(paths, p)
		}
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "tls_key" && c.Value != "" {
				paths = append(paths, c.Value)
			}
			walk(c)
		}
	}
	walk(&doc)
	return paths
}

// parse returns the root of a file; nil if the file is empty.
func parse(file []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(file))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // an empty file is not an error
	} else if err != nil {
		return nil, syntax(err)
	}
	if err := d.Decode(&more); err == nil {
		return nil, Problems{{Line: more.Line, Text: "a second document begins here; use one document per file"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	return doc.Content[0], nil
}

var atLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// syntax reads the errors of the library, which begin with their line.
func syntax(err error) Problems {
	texts := []string{err.Error()}
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		texts = typed.Errors
	}
	var out Problems
	for _, text := range texts {
		p := Problem{Text: strings.TrimPrefix(text, "yaml: ")}
		if m := atLine.FindStringSubmatch(text); m != nil {
			p.Line, _ = strconv.Atoi(m[1]) // digits
			p.Text = m[2]
		}
		out = append(out, p)
	}
	return out
}

// located adds to each line of an error the line in the file that its path names.
func located(file []byte, err error) (out Problems) {
	if err == nil {
		return nil
	}
	root, _ := parse(file) // its error is already reported
	for text := range strings.SplitSeq(err.Error(), "\n") {
		out = append(out, Problem{Line: lineOf(root, text), Text: text})
	}
	return out
}

// lineOf returns the line of the deepest setting that the path at the beginning of a text
// leads to; 0 if the file has none.
func lineOf(n *yaml.Node, text string) (line int) {
	for n != nil {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			longest := -1
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i].Value
				after, ok := strings.CutPrefix(text, key)
				if ok && key != "" && len(key) > longest && (after == "" || strings.ContainsAny(after[:1], ".[: ")) {
					longest, line, next = len(key), n.Content[i].Line, n.Content[i+1]
				}
			}
			if next != nil {
				text = strings.TrimPrefix(text[longest:], ".")
			}
		case yaml.SequenceNode:
			index, after, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
			if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Content) {
				next, line, text = n.Content[i], n.Content[i].Line, strings.TrimPrefix(after, ".")
			}
		}
		n = next
	}
	return line
}

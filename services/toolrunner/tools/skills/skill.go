package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/frontmatter"
)

// Skill is one skill.
type Skill struct {
	Name          string            `yaml:"name" json:"name"`
	Description   string            `yaml:"description" json:"description"`
	License       string            `yaml:"license" json:"license,omitempty"`
	Compatibility string            `yaml:"compatibility" json:"compatibility,omitempty"`
	Metadata      map[string]string `yaml:"metadata" json:"metadata,omitempty"`
	// AllowedTools are the only tools that a turn may call after it has loaded the skill; absent:
	// it may call all.
	AllowedTools *Names `yaml:"allowed-tools" json:"allowed_tools,omitempty"`

	body     string
	size     int    // of SKILL.md, in bytes
	revision string // changes with SKILL.md
	folder   folder
}

// Names are names of tools. In YAML they are text, separated by spaces or commas outside of
// brackets.
type Names []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (n *Names) UnmarshalYAML(y *yaml.Node) error {
	if y.Kind != yaml.ScalarNode {
		return errors.New("is not text; name tools, separated by spaces")
	}
	*n = names(y.Value)
	return nil
}

// names splits a list of names. The brackets of a name, such as Bash(git add:*), stay part of it.
func names(s string) []string {
	var out strings.Builder // the names, each on a line
	depth := 0
	for _, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth = max(depth-1, 0)
		case unicode.IsSpace(r) && depth > 0:
			r = ' '
		case depth == 0 && (unicode.IsSpace(r) || r == ','):
			r = '\n'
		}
		out.WriteRune(r)
	}
	return slices.DeleteFunc(strings.Split(out.String(), "\n"), func(n string) bool { return n == "" })
}

// revisionOf identifies the content of a SKILL.md.
func revisionOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// The bounds of the format, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
	maxAllowed       = 2048
)

// maxBytes bounds SKILL.md.
const maxBytes = 256 << 10

var named = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Parse reads a SKILL.md in a folder of that name. The error lists all mistakes, with the file and
// the line.
func Parse(file, folder string, b []byte) (Skill, error) {
	parts, wrong := frontmatter.Split(b)
	return configfile.Parse(file, parts.Head, func([]byte) (Skill, error) {
		if wrong != nil {
			return Skill{}, wrong
		}
		s := Skill{body: parts.Body}
		return s, parts.Decode(&s)
	}, func(s Skill) error {
		if wrong == nil { // else it is reported already
			return s.check(folder)
		}
		return nil
	})
}

// check reports mistakes; each begins with its key.
func (s Skill) check(folder string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(s.Name) > maxName || !named.MatchString(s.Name):
		bad("name is %.80q, want 1 to %d letters a-z, digits and single hyphens between them", s.Name, maxName)
	case s.Name != folder:
		bad("name is %q, want %q as the folder is called", s.Name, folder)
	}
	if n := len([]rune(s.Description)); strings.TrimSpace(s.Description) == "" || n > maxDescription {
		bad("description has %d characters, want 1 to %d", n, maxDescription)
	}
	if n := len([]rune(s.Compatibility)); n > maxCompatibility {
		bad("compatibility has %d characters; the limit is %d", n, maxCompatibility)
	}
	if n := s.AllowedTools; n != nil {
		switch size := len(strings.Join(*n, " ")); {
		case len(*n) == 0:
			bad("allowed-tools names no tool; remove it, or name some")
		case size > maxAllowed:
			bad("allowed-tools has %d characters; the limit is %d", size, maxAllowed)
		}
	}
	return errors.Join(errs...)
}

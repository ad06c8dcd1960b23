package skills

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

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
	AllowedTools  string            `yaml:"allowed-tools" json:"-"` // separated by spaces; not enforced

	body   string
	folder folder
}

// The bounds of the format, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
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
	return errors.Join(errs...)
}

package skills

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"skandha.dev/services/internal/frontmatter"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

const (
	file         = "SKILL.md"
	maxSkills    = 100     // of one directory
	maxEntries   = 2000    // of a directory that are looked at
	maxListed    = 8 << 10 // bytes of the list for the model
	maxFolder    = 200     // files that are listed of one folder
	workspaceDir = "skills"
)

// Place is a directory whose folders are skills.
type Place struct {
	label   string
	protect []string
	open    func() (*os.Root, error)
}

// InWorkspace is the folder skills of a workspace. Protected paths are not read.
func InWorkspace(root *os.Root, protect ...string) Place {
	return Place{workspaceDir, protect, func() (*os.Root, error) { return root.OpenRoot(workspaceDir) }}
}

// InDirectory is a directory on the disk; without a name it has no skills.
func InDirectory(dir string) Place {
	return Place{cmp.Or(dir, "."), nil, func() (*os.Root, error) {
		if dir == "" {
			return nil, fs.ErrNotExist
		}
		return os.OpenRoot(dir)
	}}
}

// Library is the skills of several places. A later place takes precedence.
type Library struct{ places []Place }

// New returns the library of the places.
func New(places ...Place) *Library { return &Library{places} }

// folder is a skill's folder.
type folder struct {
	place Place
	name  string
}

// open opens the folder. The caller closes it.
func (f folder) open() (*os.Root, error) {
	root, err := f.place.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenRoot(f.name)
}

// List reads all skills, sorted by name, and reports what is wrong with the others.
func (l *Library) List() (list []Skill, wrong []error) {
	byName := map[string]Skill{}
	for _, p := range l.places {
		found, bad := p.list()
		for _, s := range found {
			byName[s.Name] = s
		}
		wrong = append(wrong, bad...)
	}
	for _, s := range byName {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Skill) int { return cmp.Compare(a.Name, b.Name) })
	return list, wrong
}

func (p Place) list() (found []Skill, wrong []error) {
	root, err := p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("opening %s: %w", p.label, err)}
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, []error{fmt.Errorf("listing %s: %w", p.label, err)}
	}
	if len(entries) > maxEntries {
		wrong = append(wrong, fmt.Errorf("%s has %d entries; only the first %d are read", p.label, len(entries), maxEntries))
		entries = entries[:maxEntries]
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if len(found)+len(wrong) >= maxSkills {
			return found, append(wrong, fmt.Errorf("%s has more than %d skills; the others are left out", p.label, maxSkills))
		}
		s, err := p.read(root, e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // not a skill
		case err != nil:
			wrong = append(wrong, err)
		default:
			found = append(found, s)
		}
	}
	return found, wrong
}

func (p Place) read(root *os.Root, name string) (Skill, error) {
	at := path.Join(p.label, name, file)
	b, err := frontmatter.Read(root, path.Join(name, file), maxBytes)
	if err != nil {
		return Skill{}, fmt.Errorf("reading %s: %w", at, err)
	}
	s, err := Parse(at, name, b)
	s.folder = folder{p, name}
	return s, err
}

// get returns one skill, as it is now.
func (l *Library) get(name string) (Skill, error) {
	list, wrong := l.List()
	names := make([]string, len(list))
	for i, s := range list {
		if names[i] = s.Name; s.Name == name {
			return s, nil
		}
	}
	for _, err := range wrong {
		if strings.Contains(err.Error(), path.Join(name, file)) {
			return Skill{}, fmt.Errorf("the skill cannot be used: %w", err)
		}
	}
	return Skill{}, fmt.Errorf("no skill is called %.80q; there are: %s", name, strings.Join(names, ", "))
}

// Source is the skill's SKILL.md; that of a workspace is relative to the workspace.
func (s Skill) Source() string { return path.Join(s.folder.place.label, s.Name, file) }

// files lists the files of the folder except SKILL.md, at most maxFolder.
func (s Skill) files() (names []string, err error) {
	root, err := s.folder.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	seen := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		seen++
		switch {
		case err != nil:
			return err
		case len(names) == maxFolder || seen > maxEntries:
			return fs.SkipAll
		case d.Type().IsRegular() && name != file:
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// text reads a part of a file of the folder.
func (s Skill) text(name string, offset int64) (filesystem.Content, error) {
	root, err := s.folder.open()
	if err != nil {
		return filesystem.Content{}, err
	}
	defer func() { _ = root.Close() }()
	return filesystem.ReadText(root, name, offset, 0, s.folder.place.protect...)
}

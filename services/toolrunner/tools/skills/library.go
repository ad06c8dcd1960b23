package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"skandha.dev/services/internal/frontmatter"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

const (
	file       = "SKILL.md"
	maxSkills  = 100     // of one directory
	maxEntries = 2000    // of a directory that are looked at
	maxTotal   = 4 << 20 // bytes of all SKILL.md of a directory
	maxListed  = 8 << 10 // bytes of the list for the model
	maxFolder  = 200     // files that are listed of one folder
)

// Place is a directory whose folders are skills.
type Place struct {
	label   string
	protect []string
	open    func() (*os.Root, error)
}

// InWorkspace is the folder skills of a workspace; it is no symbolic link. Protected paths are not
// read.
func InWorkspace(root *os.Root, protect ...string) Place {
	return Place{filesystem.SkillsDir, protect, func() (*os.Root, error) {
		if info, err := root.Lstat(filesystem.SkillsDir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, errors.New("it is a symbolic link; make it a folder of the workspace")
		}
		return root.OpenRoot(filesystem.SkillsDir)
	}}
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
	entries, err := p.entries(root)
	if err != nil {
		wrong = append(wrong, err)
	}
	total := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if len(found)+len(wrong) >= maxSkills {
			return found, append(wrong, fmt.Errorf("%s has more than %d skills; the others are left out", p.label, maxSkills))
		}
		s, err := p.read(root, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // not a skill
		}
		if total += s.size; total > maxTotal {
			return found, append(wrong, fmt.Errorf("the files SKILL.md in %s have more than %d bytes; "+
				"%s and those after it are left out", p.label, maxTotal, e.Name()))
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		found = append(found, s)
	}
	return found, wrong
}

// entries reads a bounded part of the directory, sorted by name.
func (p Place) entries(root *os.Root) ([]fs.DirEntry, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.label, err)
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("listing %s: %w", p.label, err)
	case len(entries) > maxEntries:
		entries = entries[:maxEntries]
		err = fmt.Errorf("%s has more than %d entries; the others are left out", p.label, maxEntries)
	default:
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (p Place) read(root *os.Root, name string) (Skill, error) {
	at := path.Join(p.label, name, file)
	b, err := frontmatter.Read(root, path.Join(name, file), maxBytes)
	if err != nil {
		return Skill{size: maxBytes}, fmt.Errorf("reading %s: %w", at, err)
	}
	s, err := Parse(at, name, b)
	s.folder, s.size, s.revision = folder{p, name}, len(b), revisionOf(b)
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
func (s Skill) files(ctx context.Context) ([]string, error) {
	root, err := s.folder.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	names, err := filesystem.Files(ctx, root)
	names = slices.DeleteFunc(names, func(n string) bool { return n == file })
	return names[:min(len(names), maxFolder)], err
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

package guidefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skandha.dev/pkg/guide"
	"skandha.dev/services/internal/frontmatter"
)

const (
	ext      = ".md"
	maxBytes = 256 << 10 // of one file
)

// Read reads a guide of the directory, and the text of its file. Without such a file, the error
// is [os.ErrNotExist]; an empty directory name has no files.
func Read(dir, name string) (guide.Guide, []byte, error) {
	b, err := read(dir, name)
	if err != nil {
		return guide.Guide{}, nil, err
	}
	g, err := Parse(filepath.Join(dir, name+ext), name, b)
	return g, b, err
}

func read(dir, name string) ([]byte, error) {
	if dir == "" || !named.MatchString(name) {
		return nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of guides: %w", err)
	}
	defer func() { _ = root.Close() }()
	b, err := frontmatter.Read(root, name+ext, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading guide %s in %s: %w", name, dir, err)
	}
	return b, nil
}

// Names lists the guides of the directory; there are none if it does not exist.
func Names(dir string) (names []string, err error) {
	if dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ext); ok && named.MatchString(name) && name != "README" {
			names = append(names, name)
		}
	}
	return names, err
}

// Files are the guides of a directory as they are now. Only one goroutine may use them.
type Files struct {
	dir   string
	files map[string]*file
}

// NewFiles returns the guides of a directory; an empty name has none.
func NewFiles(dir string) *Files { return &Files{dir, map[string]*file{}} }

// file is what is known about one file.
type file struct {
	seen  version // by the last check
	taken version // the version that found is made of
	found Found
}

// version is the content of a file, or the error of reading it.
type version struct{ content, err string }

// Found is the guide of a file.
type Found struct {
	Guide guide.Guide
	Have  bool  // there is a guide
	Err   error // what is wrong with the file; with Have, the guide is of an earlier version
}

// Check reads the files of the named guides, and reports whether anything changed. A new name is
// read at once.
func (f *Files) Check(names []string) (changed bool) {
	for _, name := range names {
		b, err := read(f.dir, name)
		v := version{content: string(b)}
		if err != nil {
			v.err = err.Error()
		}
		known := f.files[name]
		if known == nil {
			known = &file{seen: v}
			f.files[name] = known
		} else if v == known.taken {
			known.seen = v
			continue
		}
		if v != known.seen {
			known.seen = v
			continue // it may still be written to
		}
		changed = true
		known.take(f.dir, name, v, err)
	}
	return changed
}

func (f *file) take(dir, name string, v version, err error) {
	f.taken = v
	var g guide.Guide
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.found = Found{}
		return
	case err == nil:
		g, err = Parse(filepath.Join(dir, name+ext), name, []byte(v.content))
	}
	if f.found.Err = err; err == nil {
		f.found.Guide, f.found.Have = g, true
	}
}

// Get returns the guide of that name, as of the last check: of a file or, if there is none, the
// built-in one. Have and Err are unset if there is neither.
func (f *Files) Get(name string) Found {
	if known := f.files[name]; known != nil && (known.found.Have || known.found.Err != nil) {
		return known.found
	}
	g, _, ok := BuiltIn(name)
	return Found{Guide: g, Have: ok}
}

package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Repo is a parsed source tree.
type Repo struct {
	Packages map[string]*Package // by import path
	Modules  map[string]*Module  // by module path
}

// Module is what a go.mod says.
type Module struct {
	Path     string
	Requires []string // module paths, the indirect ones too
}

// Package is the Go files of one directory.
type Package struct {
	Path   string // import path
	Name   string // of its package clause, without _test
	Module string
	Files  []*File
}

// File is one Go file.
type File struct {
	Path  string // from the root of the tree
	Test  bool
	Lines int
	AST   *ast.File
}

// Imports lists what the package's own files (its tests' files if tests is set)
// import, sorted, each once.
func (p *Package) Imports(tests bool) []string {
	var out []string
	for _, f := range p.Files {
		if f.Test == tests {
			out = append(out, f.imports()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (f *File) imports() []string {
	out := make([]string, 0, len(f.AST.Imports))
	for _, spec := range f.AST.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Load parses every module of the tree. Directories that the go command ignores
// are ignored here too.
func Load(tree fs.FS) (*Repo, error) {
	repo := &Repo{Packages: map[string]*Package{}, Modules: map[string]*Module{}}
	roots := map[string]*Module{} // by directory
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && p != ".":
			return nil // it was there for a moment: somebody works in the tree, or runs its tests
		case err != nil:
			return err
		case d.IsDir():
			if ignored(p) {
				return fs.SkipDir
			}
			// A directory is walked before what is in it, so its go.mod is
			// known before the files that it rules.
			return repo.module(tree, p, roots)
		case strings.HasSuffix(p, ".go"):
			return repo.file(tree, p, roots)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the source tree: %w", err)
	}
	if len(repo.Packages) == 0 {
		return nil, fmt.Errorf("reading the source tree: no Go package in any module")
	}
	return repo, nil
}

func ignored(dir string) bool {
	base := path.Base(dir)
	return base == "testdata" || base == "vendor" || base == "node_modules" ||
		(base != "." && strings.HasPrefix(base, ".")) || strings.HasPrefix(base, "_")
}

func (r *Repo) module(tree fs.FS, dir string, roots map[string]*Module) error {
	src, err := fs.ReadFile(tree, path.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no module begins here
	}
	if err != nil {
		return err
	}
	m := &Module{}
	block := false
	for line := range strings.Lines(string(src)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "module":
			m.Path = words[1]
		case words[0] == "require" && len(words) > 1 && words[1] == "(":
			block = true
		case words[0] == ")":
			block = false
		case words[0] == "require":
			m.Requires = append(m.Requires, words[1])
		case block:
			m.Requires = append(m.Requires, words[0])
		}
	}
	if m.Path == "" {
		return fmt.Errorf("%s has no module line", path.Join(dir, "go.mod"))
	}
	roots[dir] = m
	r.Modules[m.Path] = m
	return nil
}

func (r *Repo) file(tree fs.FS, name string, roots map[string]*Module) error {
	root := path.Dir(name)
	for roots[root] == nil && root != "." {
		root = path.Dir(root)
	}
	m := roots[root]
	if m == nil {
		return nil // in no module: nothing can import it
	}
	src, err := fs.ReadFile(tree, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // likewise
	}
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	at := m.Path
	if rel := strings.TrimPrefix(strings.TrimPrefix(dir, root), "/"); dir != root && rel != "" {
		at = path.Join(m.Path, rel)
	}
	p := r.Packages[at]
	if p == nil {
		p = &Package{Path: at, Module: m.Path}
		r.Packages[at] = p
	}
	f := &File{Path: name, Test: strings.HasSuffix(name, "_test.go"), Lines: bytes.Count(src, []byte("\n")), AST: file}
	p.Files = append(p.Files, f)
	if p.Name == "" || !f.Test {
		p.Name = strings.TrimSuffix(file.Name.Name, "_test")
	}
	return nil
}

package filesystem

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lister walks a directory.
type lister struct {
	ctx       context.Context //nolint:containedctx // of this one call
	root      *os.Root
	recursive bool
	out       listing
}

// Files lists the regular files below root, with slashes, at most 1000.
func Files(ctx context.Context, root *os.Root) (names []string, err error) {
	l := lister{ctx: ctx, root: root, recursive: true}
	err = l.walk(".", 0)
	for _, e := range l.out.Entries {
		if e.Type == isFile {
			names = append(names, e.Path)
		}
	}
	return names, err
}

func (l *lister) walk(dir string, depth int) error {
	entries, err := l.readDir(dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if len(l.out.Entries) >= maxEntries {
			l.out.Truncated = true
			return nil
		}
		name := filepath.Join(dir, d.Name())
		if ownDir(name) {
			continue
		}
		l.out.Entries = append(l.out.Entries, describe(name, d))
		if !l.recursive || !d.IsDir() {
			continue
		}
		if depth >= maxDepth {
			l.out.Truncated = true
			continue
		}
		// Entries that vanished or cannot be read are skipped.
		if err := l.walk(name, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) &&
			!errors.Is(err, errNotDir) {
			return err
		}
	}
	return nil
}

// readDir reads a bounded part of a directory, sorted by name.
func (l *lister) readDir(dir string) ([]fs.DirEntry, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := l.root.OpenFile(dir, os.O_RDONLY|opening, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		return nil, cmp.Or(err, errNotDir)
	}
	entries, err := f.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxEntries {
		l.out.Truncated = true
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func describe(name string, d fs.DirEntry) entry {
	e := entry{Path: filepath.ToSlash(name), Type: typeOf(d.Type())}
	if info, err := d.Info(); err == nil { // it may have vanished
		e.Modified = info.ModTime().UTC().Format(time.RFC3339)
		if info.Mode().IsRegular() {
			e.Size = info.Size()
		}
	}
	return e
}

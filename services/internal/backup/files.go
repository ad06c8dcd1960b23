package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// zeros are written for what is missing of a file that was shortened while it was read.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// directory writes the regular files and directories below a path. A path that does not exist is left out.
func (t *taker) directory(ctx context.Context, d Source) error {
	if !dirName.MatchString(d.Name) {
		return fmt.Errorf("the name %q must be of a-z, 0-9 and -", d.Name)
	}
	root, err := os.OpenRoot(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	p := t.w.part("directories/" + d.Name)
	to := &reporting{Writer: p, at: Progress{What: d.Name}, report: t.Progress}
	out := Dir{Name: d.Name}
	files := tar.NewWriter(to)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed since it was listed
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case path == ".", strings.HasPrefix(path, partial):
			return nil
		case !e.IsDir() && !e.Type().IsRegular():
			out.Skipped++
			return nil
		}
		if err := addFile(files, root, path); errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed since it was listed
		} else if err != nil {
			return err
		}
		if !e.IsDir() {
			out.Files++
		}
		return nil
	})
	if err = errors.Join(err, files.Close(), p.Close()); err != nil {
		return err
	}
	out.Part = p.Part
	t.m.Dirs = append(t.m.Dirs, out)
	t.Progress(Progress{What: d.Name, Bytes: p.Bytes, Done: true})
	return nil
}

func addFile(to *tar.Writer, root *os.Root, path string) error {
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: info.Size(), Format: tar.FormatPAX}
	if info.IsDir() {
		h.Typeflag, h.Name, h.Size = tar.TypeDir, path+"/", 0
	}
	h.Mode, h.ModTime = int64(info.Mode().Perm()), info.ModTime()
	if err := to.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(to, io.MultiReader(f, zeros{}), h.Size)
	return err
}

// partial is how the names of unfinished files begin.
const partial = ".skandha-restore-"

// target is a directory that is restored: first into a directory within, then in place.
type target struct {
	Source
	dir Dir
	tmp string // within Path; empty until it exists
}

type targets []*target

// targets are the directories of the archive that are to be restored.
func (a *Archive) targets(c RestoreConfig) (all targets, err error) {
	for _, s := range c.Dirs {
		i := slices.IndexFunc(a.Dirs, func(d Dir) bool { return d.Name == s.Name })
		if i < 0 {
			continue
		}
		if err := os.MkdirAll(s.Path, 0o700); err != nil {
			return nil, fmt.Errorf("directory %s: %w", s.Name, err)
		}
		all = append(all, &target{Source: s, dir: a.Dirs[i]})
	}
	return all, nil
}

// children lists what is in the directory, without what a restore that was killed has left.
func (t *target) children() (names []string) {
	all, err := os.ReadDir(t.Path)
	if err != nil {
		return []string{"?"} // unreadable is not empty
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), partial) {
			names = append(names, e.Name())
		}
	}
	return names
}

func (all targets) occupied() (what []string) {
	for _, t := range all {
		if n := len(t.children()); n > 0 {
			what = append(what, fmt.Sprintf("directory %s (%d entries)", t.Path, n))
		}
	}
	return what
}

// extract writes the files where they can be moved in place.
func (all targets) extract(ctx context.Context, a *Archive, report func(Progress)) error {
	for _, t := range all {
		if err := t.extract(ctx, a.reader(t.dir.Part), report); err != nil {
			return fmt.Errorf("directory %s: %w", t.Path, err)
		}
	}
	return nil
}

func (t *target) extract(ctx context.Context, from io.Reader, report func(Progress)) (err error) {
	if t.tmp, err = os.MkdirTemp(t.Path, partial); err != nil {
		return err
	}
	root, err := os.OpenRoot(t.tmp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	from = &progressReader{from, Progress{What: t.Name, Of: t.dir.Bytes}, report}
	for entries := tar.NewReader(from); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := extractOne(root, h, entries); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // the end, where the digest is compared
		return err
	}
	report(Progress{What: t.Name, Bytes: t.dir.Bytes, Of: t.dir.Bytes, Done: true})
	return nil
}

// extractOne writes a file or directory. A root lets no name lead out of it.
func extractOne(root *os.Root, h *tar.Header, from io.Reader) error {
	name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: the name leads out of the directory", ErrAltered)
	}
	mode := fs.FileMode(h.Mode).Perm() //nolint:gosec // Perm has 9 bits
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%w: it is neither a file nor a directory", ErrAltered)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime)
}

// place removes what is in the directories, and moves what was extracted in its place.
func (all targets) place() error {
	for _, t := range all {
		for _, name := range t.children() {
			if err := os.RemoveAll(filepath.Join(t.Path, name)); err != nil {
				return fmt.Errorf("directory %s: %w", t.Path, err)
			}
		}
		restored, err := os.ReadDir(t.tmp)
		for _, e := range restored {
			err = errors.Join(err, os.Rename(filepath.Join(t.tmp, e.Name()), filepath.Join(t.Path, e.Name())))
		}
		if err != nil {
			return fmt.Errorf("directory %s: %w", t.Path, err)
		}
	}
	return nil
}

// clean removes what is left of the extracted files.
func (all targets) clean() {
	for _, t := range all {
		if t.tmp != "" {
			_ = os.RemoveAll(t.tmp) // it is ignored by the next restore, too
		}
	}
}

// progressReader reports progress of what is read.
type progressReader struct {
	io.Reader
	at     Progress
	report func(Progress)
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.at.Bytes += int64(n)
	r.report(r.at)
	return n, err
}

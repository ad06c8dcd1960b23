package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNotFound means that the archive has no such file.
var ErrNotFound = errors.New("not in the archive")

// Store holds the files of an archive. Names are as of package archive.
type Store interface {
	// Put stores a whole file, or nothing. It is durable once Put returns.
	Put(ctx context.Context, name string, body []byte) error
	// Get returns a whole file, or [ErrNotFound].
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns the names that begin with the prefix, which ends with a slash, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes a file. It is not an error if there is none.
	Delete(ctx context.Context, name string) error
	// String returns where the archive is, without secrets.
	String() string
}

// Check returns what is wrong with a place as it is written; see [Open].
func Check(where string) error {
	switch {
	case where == "":
		return errors.New("archive: none given, want the path of a directory, or s3://BUCKET/PREFIX")
	case strings.HasPrefix(where, schemeS3):
		_, _, err := parseS3(where)
		return err
	case strings.Contains(where, "://"):
		return fmt.Errorf("archive %q: want the path of a directory, or s3://BUCKET/PREFIX", where)
	}
	return nil
}

// Open returns the archive at a place: the path of a directory, which is created, or s3://BUCKET/PREFIX; see [openS3].
func Open(ctx context.Context, where string) (Store, error) {
	if err := Check(where); err != nil {
		return nil, err
	}
	if strings.HasPrefix(where, schemeS3) {
		return openS3(ctx, where)
	}
	if err := os.MkdirAll(where, 0o700); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return directory(where), nil
}

// directory is an archive in the file system.
type directory string

func (d directory) String() string { return string(d) }

func (d directory) path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

// Put implements Store.
func (d directory) Put(_ context.Context, name string, body []byte) error {
	path := d.path(name)
	dir := filepath.Dir(path)
	if err := d.makeDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeDir creates a directory of the archive, durably.
func (d directory) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for at := dir; len(at) > len(string(d)); {
		at = filepath.Dir(at)
		if err := syncDir(at); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get implements Store.
func (d directory) Get(_ context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return b, err
}

// List implements Store.
func (d directory) List(ctx context.Context, prefix string) (names []string, err error) {
	root := d.path(prefix)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == root:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case e.Type().IsRegular() && strings.HasSuffix(path, suffix):
			rel, err := filepath.Rel(string(d), path)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Delete implements Store.
func (d directory) Delete(_ context.Context, name string) error {
	err := os.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

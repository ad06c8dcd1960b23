package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var errOutside = errors.New("it is outside the workspace")

// throughLink returns an error if one of the path's parents, or with last the path
// itself, is a symbolic link. It names the path without the link: policy, hooks and users
// judge a call by the path that it names.
func throughLink(root *os.Root, name string, last bool) error {
	parts := strings.Split(name, string(filepath.Separator))
	if !last {
		parts = parts[:len(parts)-1]
	}
	for i := range parts {
		at := filepath.Join(parts[:i+1]...)
		info, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it does not exist yet
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink == 0:
			continue
		}
		to, err := target(root, at)
		if err != nil {
			return err
		}
		own := filepath.ToSlash(filepath.Join(to, strings.TrimPrefix(name, at)))
		return fmt.Errorf("%s is a symbolic link: use the path that it leads to, %q", filepath.ToSlash(at), own)
	}
	return nil
}

// target returns where a link leads, relative to the workspace and without links.
func target(root *os.Root, name string) (string, error) {
	base, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return "", err
	}
	to, err := filepath.EvalSymlinks(filepath.Join(base, name))
	if err != nil {
		return "", err
	}
	if to, err = filepath.Rel(base, to); err != nil || !filepath.IsLocal(to) {
		return "", errOutside
	}
	return to, nil
}

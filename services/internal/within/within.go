// Package within says whether a path is in a directory, by the files themselves and not by their names.
package within

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Contains reports whether a path, with links resolved, is the directory or below it.
// A path that does not exist yet is judged by its parent.
func Contains(dir, path string) (bool, error) {
	want, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	for {
		resolved, err := filepath.EvalSymlinks(at)
		if err == nil {
			at = resolved
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return false, err
		}
		at = filepath.Dir(at)
	}
	for {
		is, err := os.Stat(at)
		if err != nil {
			return false, err
		}
		if os.SameFile(is, want) {
			return true, nil
		}
		if at == filepath.Dir(at) {
			return false, nil
		}
		at = filepath.Dir(at)
	}
}

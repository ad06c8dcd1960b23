package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// MaxFile is the largest file that is written, in bytes.
const MaxFile = 64 << 20

// opening never waits for a FIFO's other end, and never acquires a terminal.
const opening = syscall.O_NONBLOCK | syscall.O_NOCTTY

var (
	errNotRegular = errors.New("it is not a regular file")
	errIsDir      = errors.New("it is a directory")
	errNotDir     = errors.New("it is not a directory")
)

// clean checks a path for faults that [os.Root] reports less clearly.
func clean(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("the path is empty; name a file or directory below the workspace")
	case strings.ContainsRune(name, 0):
		return "", errors.New("the path contains a NUL byte")
	case len(name) > 4096:
		return "", fmt.Errorf("the path has %d bytes, at most 4096 are allowed", len(name))
	case path.IsAbs(name) || filepath.IsAbs(name):
		return "", errors.New("the path is absolute; use a path relative to the workspace")
	}
	return filepath.FromSlash(path.Clean(name)), nil
}

// OpenRegular opens a regular file of the workspace and nothing else. The type
// is checked before opening, so that no device is touched, and after it,
// because the file may have been swapped.
func OpenRegular(root *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	info, err := root.Stat(name)
	if err == nil {
		err = regular(info)
	} else if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(name, flag|opening, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func regular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errIsDir
	case !info.Mode().IsRegular():
		return errNotRegular
	}
	return nil
}

// explain describes an error of a path without the machine's own paths.
func explain(doing, name string, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it does not exist")
	case errors.Is(err, fs.ErrPermission):
		err = errors.New("permission denied")
	case errors.As(err, &pathErr):
		err = pathErr.Err
	case errors.As(err, &linkErr):
		err = linkErr.Err
	}
	if strings.Contains(err.Error(), "escapes from parent") {
		err = errOutside
	}
	return fmt.Errorf("%s %.200q: %w", doing, name, err)
}

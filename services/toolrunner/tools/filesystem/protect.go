package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

var errProtected = errors.New("it belongs to the system and is not accessible to tools")

// guarded makes a tool refuse a path that leads to one of the protected files or
// directories under any name, as a hard link or a mount may also lead out of a workspace, and
// one that leads through a symbolic link. delete_file deletes a link itself, so there the
// last name may be one.
func guarded(t tools.Tool, root *os.Root, protected []string) tools.Tool {
	run, last := t.Run, t.Spec.Name != nameDelete
	t.Run = func(ctx context.Context, c tools.Call) tool.Result {
		var args struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(c.Args, &args) == nil { // otherwise the tool reports the error
			p, err := clean(args.Path)
			switch {
			case err != nil: // the tool reports it
			case meets(root, p, protected):
				return tools.Fail(explain("reaching", args.Path, errProtected))
			default:
				if err := throughLink(root, p, last); err != nil {
					return tools.Fail(explain("reaching", args.Path, err))
				}
			}
		}
		return run(ctx, c)
	}
	return t
}

// meets reports whether the path or one of its parents is one of the paths, or whether it
// is a hard link to a file below one.
func meets(root *os.Root, name string, paths []string) bool {
	parts := strings.Split(name, string(filepath.Separator))
	for i := range parts {
		is, err := root.Stat(filepath.Join(parts[:i+1]...))
		if err != nil {
			return false // it does not exist
		}
		for _, p := range paths {
			want, err := os.Stat(p)
			if err == nil && (os.SameFile(is, want) || linked(is) && want.IsDir() && holds(root, p, is)) {
				return true
			}
		}
	}
	return false
}

// linked reports whether a file has more than one name.
func linked(f fs.FileInfo) bool {
	st, ok := f.Sys().(*syscall.Stat_t)
	return ok && f.Mode().IsRegular() && st.Nlink > 1
}

// holds reports whether the file is below dir, or whether that is unknown. The
// workspace, which may be in dir, is left out.
func holds(root *os.Root, dir string, file fs.FileInfo) bool {
	own, err := root.Stat(".")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return true
	}
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it vanished
		case err != nil:
			return err
		case d.IsDir() && os.SameFile(info, own):
			return filepath.SkipDir
		case os.SameFile(info, file):
			return errProtected
		}
		return nil
	})
	return err != nil
}

package toolrunner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckWorkspace returns an error if the workspace contains a protected path, or is inside
// one; it compares files and directories, not their names. A workspace with the name
// workspace may be directly inside a protected directory.
func (c Config) CheckWorkspace() error {
	c = c.withDefaults()
	var errs []error
	for _, p := range c.protected() {
		err := outside(p, c.WorkspaceDir)
		if err == nil {
			err = apart(p, c.WorkspaceDir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// outside refuses a workspace that contains a protected path.
func outside(protected, workspace string) error {
	within, err := contains(workspace, protected)
	if err == nil && within {
		err = fmt.Errorf("the workspace %s contains %s, so tools could read and change it: "+
			"name another directory with --workspace or SKANDHA_WORKSPACE", workspace, protected)
	}
	return err
}

// apart refuses a workspace inside a protected directory, except for the default
// one.
func apart(protected, workspace string) error {
	if info, err := os.Stat(protected); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil // nothing can be inside it
	} else if err != nil {
		return err
	}
	own := filepath.Join(protected, defaultWorkspace)
	if meant, err := contains(own, workspace); meant || err != nil {
		return err
	}
	within, err := contains(protected, workspace)
	if err == nil && within {
		err = fmt.Errorf("the workspace %s is inside %s, so tools could change the files there: "+
			"name %s or a directory elsewhere with --workspace or SKANDHA_WORKSPACE", workspace, protected, own)
	}
	return err
}

// contains reports whether a path, with links resolved, is the directory or below it.
// A path that does not exist yet is judged by its parent.
func contains(dir, path string) (bool, error) {
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

package toolrunner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skandha.dev/services/internal/within"
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
	inside, err := within.Contains(workspace, protected)
	if err == nil && inside {
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
	if meant, err := within.Contains(own, workspace); meant || err != nil {
		return err
	}
	inside, err := within.Contains(protected, workspace)
	if err == nil && inside {
		err = fmt.Errorf("the workspace %s is inside %s, so tools could change the files there: "+
			"name %s or a directory elsewhere with --workspace or SKANDHA_WORKSPACE", workspace, protected, own)
	}
	return err
}

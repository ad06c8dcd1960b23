package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

var errProtected = errors.New("it belongs to the system, which tools may not reach")

// protected makes a tool refuse a path on whose way one of the files or directories
// lies, by whatever name: a hard link or a mount leads out of a workspace, too.
func protected(t tools.Tool, root *os.Root, paths []string) tools.Tool {
	run := t.Run
	t.Run = func(ctx context.Context, c tools.Call) tool.Result {
		var args struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(c.Args, &args) == nil { // else the tool says what is wrong
			if p, err := clean(args.Path); err == nil && meets(root, p, paths) {
				return tools.Fail(explain("reaching", args.Path, errProtected))
			}
		}
		return run(ctx, c)
	}
	return t
}

// meets reports whether the path or one of its parents is one of the paths.
func meets(root *os.Root, name string, paths []string) bool {
	parts := strings.Split(name, string(filepath.Separator))
	for i := range parts {
		is, err := root.Stat(filepath.Join(parts[:i+1]...))
		if err != nil {
			return false // nothing is there
		}
		for _, p := range paths {
			if want, err := os.Stat(p); err == nil && os.SameFile(is, want) {
				return true
			}
		}
	}
	return false
}

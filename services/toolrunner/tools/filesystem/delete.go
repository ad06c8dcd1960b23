package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

const nameDelete = "file_system:delete_file"

// deleteTool removes one file permanently: a person is asked, unless policy says
// otherwise.
func deleteTool(root *os.Root, x *labels) tools.Tool {
	return tools.New(tool.Spec{
		Name: nameDelete,
		Description: "Deletes one file of the workspace. It cannot be brought back. " +
			"Directories are not deleted; of a symbolic link, the link is.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"description":"path relative to the workspace"}},
			"required":["path"],"additionalProperties":false}`),
		Idempotent: false, Risk: tool.RiskHigh, Permissions: []string{"fs.delete"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management"}, TimeoutMS: 30_000,
	}, func(ctx context.Context, _ tools.Call, args struct {
		Path string `json:"path"`
	},
	) tool.Result {
		p, err := clean(args.Path)
		var size int64
		if err == nil {
			err = x.change(ctx, p, nil, replaces, func() (err error) {
				size, err = remove(root, p)
				return err
			})
		}
		if err != nil {
			return tools.Fail(explain("deleting", args.Path, err))
		}
		return tool.OK(map[string]any{"path": args.Path, "size": size})
	})
}

// remove removes a name from its directory, and returns once that is on the disk.
func remove(root *os.Root, name string) (size int64, err error) {
	info, err := root.Lstat(name)
	if err != nil {
		return 0, err
	}
	if info.Mode()&os.ModeSymlink == 0 {
		if err := regular(info); err != nil {
			return 0, err
		}
	}
	if err := root.Remove(name); err != nil {
		return 0, err
	}
	return info.Size(), syncDir(root, filepath.Dir(name))
}

// syncDir returns once the names in a directory are on the disk.
func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

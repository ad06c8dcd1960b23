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
func deleteTool(root *os.Root) tools.Tool {
	return tools.New(tool.Spec{
		Name: nameDelete,
		Description: "Deletes one file of the workspace. It cannot be brought back. " +
			"Directories are not deleted; of a symbolic link, the link is.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"description":"path relative to the workspace"}},
			"required":["path"],"additionalProperties":false}`),
		Idempotent: false, Risk: tool.RiskHigh, Permissions: []string{"fs.delete"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management"}, TimeoutMS: 30_000,
	}, func(_ context.Context, _ tools.Call, args struct {
		Path string `json:"path"`
	},
	) tool.Result {
		p, err := clean(args.Path)
		var size int64
		if err == nil {
			size, err = remove(root, p)
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
	dir, err := root.Open(filepath.Dir(name))
	if err != nil {
		return 0, err
	}
	return info.Size(), errors.Join(dir.Sync(), dir.Close())
}

package filesystem

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// writeTool writes a whole file in one step.
func writeTool(root *os.Root, x *labels) tools.Tool {
	return tools.New(tool.Spec{
		Name: "file_system:write_file",
		Description: "Writes a text file of the workspace, replacing all of it in one step; missing directories are made. " +
			"Mode create (the default) refuses to touch a file that exists with other content; mode overwrite replaces it.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"description":"path relative to the workspace"},
			"content":{"type":"string","description":"the whole content of the file"},
			"mode":{"enum":["create","overwrite"],"default":"create"}},
			"required":["path","content"],"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskMedium, Permissions: []string{"fs.write"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management", "creative_work"}, TimeoutMS: 30_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
		Mode    string `json:"mode"`
	},
	) tool.Result {
		p, err := cleanToWrite(args.Path)
		if err == nil {
			how := creates
			if args.Mode == "overwrite" {
				how = replaces
			}
			err = x.change(ctx, p, c.After, how, func() error { return write(root, p, []byte(args.Content), how == replaces) })
		}
		if err != nil {
			return tools.Fail(explain("writing", args.Path, err))
		}
		return tool.OK(map[string]any{"path": args.Path, "size": len(args.Content)})
	})
}

func write(root *os.Root, name string, data []byte, overwrite bool) error {
	perm := fs.FileMode(0o644)
	info, err := root.Lstat(name)
	switch {
	case err == nil:
		// Renaming over a link would replace the link instead of its target.
		if err := regular(info); err != nil {
			return err
		}
		perm = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temp, err := writeTemp(root, name, data, perm)
	if err != nil {
		return err
	}
	defer func() { _ = root.Remove(temp) }() // no longer exists after a rename
	if overwrite {
		return root.Rename(temp, name)
	}
	switch err = root.Link(temp, name); {
	case errors.Is(err, fs.ErrExist):
		return sameContent(root, name, data)
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, fs.ErrPermission):
		return createByRename(root, temp, name) // a file system without hard links
	}
	return err
}

// createByRename may replace a file that is created at the same moment.
func createByRename(root *os.Root, temp, name string) error {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fs.ErrExist)
	}
	return root.Rename(temp, name)
}

// sameContent makes a repeated create succeed if the file has the requested content.
func sameContent(root *os.Root, name string, data []byte) error {
	f, _, err := OpenRegular(root, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	have, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
	if err == nil && !bytes.Equal(have, data) {
		err = errors.New(`it exists with other content; use mode "overwrite" to replace it`)
	}
	return err
}

const (
	tempPrefix = ".skandha-"
	tempSuffix = ".tmp"
)

// cleanToWrite is clean for paths to write; it refuses names of write_file's temporary files.
func cleanToWrite(name string) (string, error) {
	p, err := clean(name)
	if err == nil && slices.ContainsFunc(strings.Split(p, string(filepath.Separator)), isTemp) {
		err = errors.New("names of the form " + tempPrefix + "*" + tempSuffix +
			" are reserved for files that are being written; choose another")
	}
	return p, err
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// writeTemp writes a new file beside name, to the disk, and returns its name.
func writeTemp(root *os.Root, name string, data []byte, perm fs.FileMode) (string, error) {
	temp := filepath.Join(filepath.Dir(name), tempPrefix+rand.Text()+tempSuffix)
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err != nil {
		_ = root.Remove(temp)
		return "", err
	}
	return temp, nil
}

// appendTool adds text to the end of a file.
func appendTool(root *os.Root, x *labels) tools.Tool {
	return tools.New(tool.Spec{
		Name: "file_system:append_file",
		Description: "Adds text to the end of a file of the workspace, which is made if it does not exist. " +
			"Nothing is put between the old and the new content: begin or end it with a line break if you want one.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"description":"path relative to the workspace"},
			"content":{"type":"string","minLength":1,"description":"what to add"}},
			"required":["path","content"],"additionalProperties":false}`),
		Idempotent: false, Risk: tool.RiskMedium, Permissions: []string{"fs.write"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management", "creative_work"}, TimeoutMS: 30_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	},
	) tool.Result {
		p, err := cleanToWrite(args.Path)
		var size int64
		if err == nil {
			err = x.change(ctx, p, c.After, adds, func() (err error) {
				size, err = Append(root, p, []byte(args.Content))
				return err
			})
		}
		if err != nil {
			return tools.Fail(explain("appending to", args.Path, err))
		}
		return tool.OK(map[string]any{"path": args.Path, "appended": len(args.Content), "size": size})
	})
}

// Append adds data to the end of a file, in one write, and returns its size when
// the data is on the disk. Missing directories and the file are made.
func Append(root *os.Root, name string, data []byte) (int64, error) {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return 0, err
	}
	f, info, err := OpenRegular(root, name, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if size := info.Size() + int64(len(data)); size > MaxFile {
		return 0, fmt.Errorf("it would have %d bytes, at most %d are allowed", size, int64(MaxFile))
	}
	if _, err := f.Write(data); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if info, err = f.Stat(); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

package filesystem

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/runes"
	"skandha.dev/services/toolrunner/tools"
)

// Tools returns the tools of this package for one workspace, within limits; they refuse
// protected paths.
func Tools(root *os.Root, l Limits, protect ...string) []tools.Tool {
	q, x := newQuota(root, l), &labels{root}
	writing := []tools.Tool{q.limited(writeTool(root, x)), q.limited(appendTool(root, x)), deleteTool(root, x)}
	if q.Instructions == InstructionsRead {
		for i := range writing {
			writing[i] = kept(writing[i])
		}
	}
	all := append([]tools.Tool{readTool(root, x), listTool(root, x)}, writing...)
	protect = append(slices.Clip(protect), filepath.Join(root.Name(), LabelsDir))
	for i := range all {
		all[i] = guarded(apart(all[i]), root, protect)
	}
	return all
}

// The sizes of one read, in bytes. The default fits into a result that need
// not be cut.
const (
	defaultRead = 12 << 10
	maxRead     = 1 << 20
)

// readTool reads a text file, or a part of it, or shows a picture or PDF.
func readTool(root *os.Root, x *labels) tools.Tool {
	return tools.New(tool.Spec{
		Name: "file_system:read_file",
		Description: "Reads a text file of the workspace, or a part of it. Answers the content, " +
			"the file's size in bytes and, if there is more, next_offset: call again with it to read on. " +
			fmt.Sprintf("A picture (PNG, JPEG, GIF or WebP) or PDF of at most %d MiB is shown to you whole. "+
				"Other binary files are refused.", result.MaxShown>>20),
		Args: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"description":"path relative to the workspace, e.g. notes/todo.md"},
			"offset":{"type":"integer","minimum":0,"default":0,"description":"the byte to begin at; default 0"},
			"limit":{"type":"integer","minimum":1,"maximum":%d,"default":%d,"description":"the most bytes to read; default %[2]d"}},
			"required":["path"],"additionalProperties":false}`, maxRead, defaultRead)),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{"fs.read"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management", "information_retrieval"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset"`
		Limit  int    `json:"limit"`
	},
	) tool.Result {
		var shown shown
		var out Content
		after, err := x.reading(ctx, args.Path, func() error {
			f, size, err := open(root, args.Path)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			if shown, err = readShown(f, size); err == nil && shown.media == "" {
				out, err = part(f, size, args.Path, args.Offset, args.Limit)
			}
			return err
		})
		switch {
		case err != nil:
			return tools.Fail(explain("reading", args.Path, err))
		case shown.media != "":
			return tools.Labelled(show(ctx, c, args.Path, shown), after)
		}
		return tools.Labelled(tool.OK(out), after)
	})
}

// Content is a part of a text file.
type Content struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Offset     int64  `json:"offset"`
	Content    string `json:"content"`
	NextOffset int64  `json:"next_offset,omitempty"` // where to read on; absent at the end
}

// ReadText reads a part of a text file below root, at most limit bytes from offset; a limit of 0
// is the default. It refuses what a file tool refuses: binary files, symbolic links and
// protected paths.
func ReadText(root *os.Root, name string, offset int64, limit int, protect ...string) (Content, error) {
	if p, err := clean(name); err == nil { // else read reports it
		if meets(root, p, protect) {
			return Content{}, explain("reaching", name, errProtected)
		}
		if err := throughLink(root, p, true); err != nil {
			return Content{}, explain("reaching", name, err)
		}
	}
	f, size, err := open(root, name)
	if err != nil {
		return Content{}, explain("reading", name, err)
	}
	defer func() { _ = f.Close() }()
	out, err := part(f, size, name, offset, limit)
	if err != nil {
		return Content{}, explain("reading", name, err)
	}
	return out, nil
}

// open opens a file to be read, and returns its size.
func open(root *os.Root, name string) (*os.File, int64, error) {
	p, err := clean(name)
	if err != nil {
		return nil, 0, err
	}
	f, info, err := OpenRegular(root, p, os.O_RDONLY)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// part reads a part of a text file.
func part(f io.ReaderAt, size int64, name string, offset int64, limit int) (Content, error) {
	if offset > size {
		return Content{}, fmt.Errorf("offset %d is beyond the end; the file has %d bytes", offset, size)
	}
	if limit <= 0 {
		limit = defaultRead
	}
	// A few more bytes on both sides show whether a character is cut.
	buf, err := io.ReadAll(io.NewSectionReader(f, offset, int64(min(limit, maxRead))+utf8.UTFMax))
	if err != nil {
		return Content{}, err
	}
	start, end := runes.Whole(buf, min(limit, maxRead), offset > 0)
	text := buf[start:end]
	if kind := binaryKind(text); kind != "" {
		return Content{}, fmt.Errorf("it is a binary file (%s, %d bytes); only text can be read", kind, size)
	}
	out := Content{Path: name, Size: size, Offset: offset + int64(start), Content: string(text)}
	if next := offset + int64(end); end < len(buf) {
		out.NextOffset = next
	}
	return out, nil
}

// binaryKind returns the type of binary data, or "" for text.
func binaryKind(b []byte) string {
	if utf8.Valid(b) && !slices.Contains(b, 0) {
		return ""
	}
	return http.DetectContentType(b)
}

// The bounds of a listing.
const (
	maxEntries = 1000
	maxDepth   = 32
)

// listTool lists a directory.
func listTool(root *os.Root, x *labels) tools.Tool {
	return tools.New(tool.Spec{
		Name: "file_system:list",
		Description: fmt.Sprintf("Lists a directory of the workspace: path, type (file, directory, "+
			"symlink or other), size in bytes and time of the last change of each entry; at most %d entries. "+
			"Symbolic links are not followed.", maxEntries),
		Args: json.RawMessage(`{"type":"object","properties":{
			"path":{"type":"string","minLength":1,"default":".","description":"directory relative to the workspace; default the workspace itself"},
			"recursive":{"type":"boolean","default":false,"description":"also list what lies in its directories"}},
			"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{"fs.read"}, Scope: []string{"path"},
		ScenarioTags: []string{"file_management", "information_retrieval"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, _ tools.Call, args struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
	},
	) tool.Result {
		if args.Path == "" {
			args.Path = "."
		}
		var l lister
		after, err := x.reading(ctx, args.Path, func() error {
			l = lister{ctx: ctx, root: root, recursive: args.Recursive, out: listing{Path: args.Path, Entries: []entry{}}}
			p, err := clean(args.Path)
			if err != nil {
				return err
			}
			return l.walk(p, 0)
		})
		if err != nil {
			return tools.Fail(explain("listing", args.Path, err))
		}
		return tools.Labelled(tool.OK(l.out), after)
	})
}

type listing struct {
	Path      string  `json:"path"`
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated,omitempty"` // there are more
}

type entry struct {
	Path     string `json:"path"` // relative to the workspace, with slashes
	Type     string `json:"type"`
	Size     int64  `json:"size,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// isFile is the type of a regular file.
const isFile = "file"

func typeOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return isFile
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}

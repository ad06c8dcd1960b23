package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

const (
	maxPath     = 4096
	maxList     = 16 << 20 // bytes of a list, as JSON
	maxMatches  = 10000
	maxArchive  = 4 << 30 // bytes of a workspace's files
	maxEntries  = 100000  // files of a workspace
	perEntry    = 16 << 10
	maxMessage  = 1000
	defaultMost = 1000 // results of a search
)

// WriteMode selects what Write does with an existing file.
type WriteMode string

// The modes.
const (
	Replace WriteMode = "replace" // Write replaces it, atomically
	Create  WriteMode = "create"  // Write fails with "exists"
	Append  WriteMode = "append"  // Write appends to it
)

// GrepQuery says what Grep searches for.
type GrepQuery struct {
	Pattern    string // a regular expression of Python's re, searched for in each line
	Path       string // a file or a directory; empty: the workspace
	Glob       string // only in files whose name (or, with a slash, path below Path) matches
	IgnoreCase bool
	Max        int // matches; default 1000, at most 10000
}

// List lists a directory, sorted by name. A path is relative to the workspace, or begins
// with it; "" is the workspace itself.
func (c *Conn) List(ctx context.Context, path string) ([]File, error) {
	var body []wireFile
	if err := c.askList(ctx, &work{op: "list", fields: map[string]any{"path": path}}, &body, nil); err != nil {
		return nil, err
	}
	return filesOf(body), nil
}

// Stat describes the file at path; it does not follow a link.
func (c *Conn) Stat(ctx context.Context, path string) (File, error) {
	return c.askFile(ctx, &work{op: "stat", fields: map[string]any{"path": path}})
}

// Read reads at most limit bytes of a file, from offset. size is the file's size.
func (c *Conn) Read(ctx context.Context, path string, offset, limit int64) (data []byte, size int64, err error) {
	if offset < 0 || limit < 0 {
		return nil, 0, &Error{
			Code: "invalid", Message: fmt.Sprintf("offset is %d and limit %d, want both 0 or more", offset, limit),
		}
	}
	var a struct {
		Size int64 `json:"size"`
	}
	w := &work{
		op: "read", fields: map[string]any{"path": path, "offset": offset, "limit": limit}, allowed: allowed{data: limit},
	}
	w.data = func(b []byte) error {
		data = append(data, b...)
		return nil
	}
	if err := c.ask(ctx, w, &a); err != nil {
		return nil, 0, err
	}
	return data, max(0, a.Size), nil
}

// Write writes a file. It creates missing parent directories.
func (c *Conn) Write(ctx context.Context, path string, data []byte, mode WriteMode) (File, error) {
	if mode != Replace && mode != Create && mode != Append {
		return File{}, &Error{Code: "invalid", Message: fmt.Sprintf("mode is %q, want replace, create or append", mode)}
	}
	w := &work{op: "write", fields: map[string]any{"path": path, "mode": mode}}
	if len(data) <= maxTail {
		w.tail = data
	} else {
		w.in = bytes.NewReader(data)
	}
	return c.askFile(ctx, w)
}

// Mkdir creates a directory and its missing parents. If it exists already, Mkdir does
// nothing.
func (c *Conn) Mkdir(ctx context.Context, path string) error {
	return c.ask(ctx, &work{op: "mkdir", fields: map[string]any{"path": path}}, nil)
}

// Remove removes a file, a link or a directory; a directory that is not empty only with
// recursive. It does not follow links.
func (c *Conn) Remove(ctx context.Context, path string, recursive bool) error {
	return c.ask(ctx, &work{op: "remove", fields: map[string]any{"path": path, "recursive": recursive}}, nil)
}

// Move renames a file or directory. It creates missing parent directories of to. It
// replaces an existing to only with overwrite, and a directory only if it is empty.
func (c *Conn) Move(ctx context.Context, from, to string, overwrite bool) error {
	return c.ask(ctx, &work{op: "move", fields: map[string]any{"from": from, "to": to, "overwrite": overwrite}}, nil)
}

// Glob finds files by a pattern: *, ?, [abc], and ** for any number of directories. Hidden
// names match only a pattern that itself begins with a dot. limit is 1000 if it is 0, and
// at most 10000; more reports that there are more.
func (c *Conn) Glob(ctx context.Context, pattern string, limit int) (files []File, more bool, err error) {
	var body []wireFile
	w := &work{op: "glob", fields: map[string]any{"pattern": pattern, "max": most(limit)}}
	if err := c.askList(ctx, w, &body, &more); err != nil {
		return nil, false, err
	}
	return filesOf(body), more, nil
}

// Grep searches text files, line by line.
func (c *Conn) Grep(ctx context.Context, q GrepQuery) (matches []Match, more bool, err error) {
	w := &work{
		op: "grep",
		fields: map[string]any{
			"pattern": q.Pattern, "path": q.Path, "glob": q.Glob, "ignore_case": q.IgnoreCase, "max": most(q.Max),
		},
	}
	if err := c.askList(ctx, w, &matches, &more); err != nil {
		return nil, false, err
	}
	for i := range matches {
		m := &matches[i]
		m.Path, m.Text, m.Line = cut(m.Path, maxPath), cut(m.Text, 500), max(1, m.Line)
	}
	return matches, more, nil
}

// Edit replaces old, which must occur exactly once, with replacement; with all it replaces
// every occurrence. n is the number of replacements.
func (c *Conn) Edit(ctx context.Context, path, old, replacement string, all bool) (n int, err error) {
	var a struct {
		N int `json:"n"`
	}
	err = c.ask(ctx, &work{op: "edit", fields: map[string]any{"path": path, "old": old, "new": replacement, "all": all}},
		&a)
	return max(0, a.N), err
}

// Export writes the whole workspace to w, for Import.
func (c *Conn) Export(ctx context.Context, w io.Writer) error {
	return c.ask(ctx, &work{
		op: "export", fields: archiveBounds(), timeout: treeTimeout,
		allowed: allowed{data: maxArchive + maxEntries*perEntry},
		data: func(b []byte) error {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("writing the archive: %w", err)
			}
			return nil
		},
	}, nil)
}

// Import adds the files of an Export to the workspace. It replaces existing files. If it
// fails, some of the files may have been written.
func (c *Conn) Import(ctx context.Context, r io.Reader) error {
	return c.ask(ctx, &work{op: "import", fields: archiveBounds(), timeout: treeTimeout, in: r}, nil)
}

func archiveBounds() map[string]any {
	return map[string]any{"max_files": maxEntries, "max_bytes": int64(maxArchive)}
}

func most(n int) int {
	if n <= 0 {
		return defaultMost
	}
	return min(n, maxMatches)
}

// askList performs an operation whose data is a JSON list.
func (c *Conn) askList(ctx context.Context, w *work, list any, more *bool) error {
	var body []byte
	w.allowed.data = maxList
	w.data = func(b []byte) error {
		body = append(body, b...)
		return nil
	}
	var a struct {
		More bool `json:"more"`
	}
	if err := c.ask(ctx, w, &a); err != nil {
		return err
	}
	if err := decode(body, list); err != nil {
		return c.fail(fmt.Errorf("invalid list of the agent: %w", err))
	}
	if more != nil {
		*more = a.More
	}
	return nil
}

func (c *Conn) askFile(ctx context.Context, w *work) (File, error) {
	var a struct {
		File *wireFile `json:"file"`
	}
	if err := c.ask(ctx, w, &a); err != nil {
		return File{}, err
	}
	if a.File == nil {
		return File{}, c.fail(fmt.Errorf("the agent's answer to %s has no file", w.op))
	}
	return a.File.file(), nil
}

// wireFile is a File as the agent sends it.
type wireFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"`
	Time   int64  `json:"mtime_ns"`
	Target string `json:"target"`
}

func (f wireFile) file() File {
	switch f.Type {
	case "file", "dir", "link":
	default:
		f.Type = "other"
	}
	return File{
		Path: cut(f.Path, maxPath), Type: f.Type, Size: max(0, f.Size), Mode: f.Mode & 0o7777,
		ModTime: time.Unix(0, f.Time).UTC(), Target: cut(f.Target, maxPath),
	}
}

// filesOf drops names that are not paths below the workspace, so that callers may use files
// by their names.
func filesOf(wire []wireFile) []File {
	files := make([]File, 0, len(wire))
	for _, f := range wire {
		if f.Path != "" && f.Path == strings.TrimPrefix(path.Clean("/"+f.Path), "/") && len(f.Path) <= maxPath {
			files = append(files, f.file())
		}
	}
	return files
}

var codes = map[string]bool{
	"not_found": true, "exists": true, "not_a_directory": true, "is_a_directory": true, "not_empty": true, "outside": true,
	"no_space":  true,
	"too_large": true, "not_text": true, "no_match": true, "ambiguous": true, "denied": true, "invalid": true,
	"failed": true,
}

func refused(code, message string) *Error {
	if !codes[code] {
		code = "failed"
	}
	return &Error{Code: code, Message: cut(message, maxMessage)}
}

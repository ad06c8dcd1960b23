package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox/agent"
)

// Bounds of the results about files.
const (
	maxEntries = 500
	maxMatches = 100
)

// Files returns the tools of the group sandbox_fs.
func Files() []Tool {
	return []Tool{
		listTool(), readTool(), writeTool(), mkdirTool(), removeTool(), moveTool(), statTool(), globTool(), grepTool(),
		editTool(), uploadTool(), downloadTool(),
	}
}

// filesSuffix ends the descriptions of the file tools.
const filesSuffix = " The files are those of the sandbox in which python:execute and shell:execute run, " +
	"relative to /workspace."

// itsPath is the scope of a tool that works with one file or directory.
var itsPath = []string{"path"}

// fileTool defines a tool that works with files: a grant is for the arguments in scope.
// Tools that only read are idempotent.
func fileTool[A any](
	name string, scope []string, description, args string, reads bool,
	do func(ctx context.Context, conn *agent.Conn, c Call, store Store, a A) (any, error),
) Tool {
	spec := tool.Spec{
		Name: "sandbox_fs:" + name, Description: description + filesSuffix,
		Args:         json.RawMessage(`{"type":"object","properties":{` + args + `,"additionalProperties":false}`),
		Permissions:  []string{"fs.write"},
		Scope:        scope,
		Risk:         tool.RiskMedium,
		ScenarioTags: []string{"file_management"}, TimeoutMS: fileTimeout.Milliseconds(),
	}
	if reads {
		spec.Idempotent, spec.Permissions, spec.Risk = true, []string{"fs.read"}, tool.RiskLow
	}
	return define(spec, func(a A) (Job, error) {
		return Job{Reads: reads, Do: func(ctx context.Context, conn *agent.Conn, c Call, store Store) (tool.Result, error) {
			v, err := do(ctx, conn, c, store, a)
			r := tool.OK(v)
			if s, ok := v.(shown); ok {
				r.Files = []provider.File{s.file}
			}
			return r, err
		}}, nil
	})
}

// pathArg returns the schema of the property "path".
func pathArg(what string) string {
	return `"path":{"type":"string","minLength":1,"description":"` + what + `"}`
}

// entry is a file in a result.
type entry struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"` // "file", "directory", "symlink" or "other"
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`
	Mode     string    `json:"mode,omitempty"`   // octal
	Target   string    `json:"target,omitempty"` // of a symlink
}

var types = map[string]string{"dir": "directory", "link": "symlink"}

func entryOf(f agent.File) entry {
	e := entry{Path: f.Path, Type: f.Type, Size: f.Size, Modified: f.ModTime.UTC().Truncate(time.Second), Target: f.Target}
	if t, ok := types[f.Type]; ok {
		e.Type = t
	}
	return e
}

type listing struct {
	Path      string  `json:"path,omitempty"`
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated,omitempty"`
}

func listingOf(p string, files []agent.File, more bool) listing {
	out := listing{
		Path: p, Entries: make([]entry, 0, min(len(files), maxEntries)), Truncated: more || len(files) > maxEntries,
	}
	for _, f := range files[:min(len(files), maxEntries)] {
		out.Entries = append(out.Entries, entryOf(f))
	}
	return out
}

// listTool returns the tool sandbox_fs:list.
func listTool() Tool {
	return fileTool("list", itsPath,
		fmt.Sprintf("Lists a directory: path, type (file, directory, symlink or other), "+
			"size in bytes and modification time of each entry; at most %d entries.", maxEntries),
		`"path":{"type":"string","default":".","description":"the directory; default /workspace itself"}}`, true,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct{ Path string }) (any, error) {
			files, err := conn.List(ctx, orDot(inside(a.Path)))
			return listingOf(orDot(a.Path), files, false), err
		})
}

func orDot(p string) string {
	if p == "" {
		return "."
	}
	return p
}

// statTool returns the tool sandbox_fs:stat.
func statTool() Tool {
	return fileTool("stat", itsPath,
		"Returns type, size in bytes, mode and modification time of one file or directory; fails if it does not exist.",
		pathArg("the file")+`},"required":["path"]`, true,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct{ Path string }) (any, error) {
			f, err := conn.Stat(ctx, inside(a.Path))
			e := entryOf(f)
			e.Mode = fmt.Sprintf("%04o", f.Mode&0o7777)
			return e, err
		})
}

// globTool returns the tool sandbox_fs:glob.
func globTool() Tool {
	return fileTool("glob", nil,
		fmt.Sprintf("Finds files by a pattern with *, ?, [..] and ** for any directories, e.g. **/*.csv; at most %d files.",
			maxEntries),
		`"pattern":{"type":"string","minLength":1,"description":"the pattern, relative to /workspace"}},"required":["pattern"]`, true,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct{ Pattern string }) (any, error) {
			files, more, err := conn.Glob(ctx, inside(a.Pattern), maxEntries)
			return listingOf("", files, more), err
		})
}

// grepTool returns the tool sandbox_fs:grep.
func grepTool() Tool {
	type match struct {
		Path string `json:"path"`
		Line int    `json:"line"` // from 1
		Text string `json:"text"`
	}
	return fileTool("grep", itsPath,
		fmt.Sprintf("Searches text files for lines that match a regular expression (Python's syntax); returns path, "+
			"line number and line of at most %d matches.", maxMatches),
		`"pattern":{"type":"string","minLength":1,"description":"the regular expression"},
		"path":{"type":"string","default":".","description":"the file, or the directory to search; default /workspace"},
		"glob":{"type":"string","default":"","description":"only files whose names match, e.g. *.py"},
		"ignore_case":{"type":"boolean","default":false},
		"max":{"type":"integer","minimum":1,"maximum":1000,"default":100,"description":"maximum number of matches"}},"required":["pattern"]`, true,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct {
			Pattern, Path, Glob string
			IgnoreCase          bool `json:"ignore_case"`
			Max                 int
		},
		) (any, error) {
			q := agent.GrepQuery{
				Pattern: a.Pattern, Path: orDot(inside(a.Path)), Glob: a.Glob, IgnoreCase: a.IgnoreCase, Max: a.Max,
			}
			if q.Max == 0 {
				q.Max = maxMatches
			}
			found, more, err := conn.Grep(ctx, q)
			out := struct {
				Matches   []match `json:"matches"`
				Truncated bool    `json:"truncated,omitempty"`
			}{make([]match, 0, len(found)), more}
			for _, m := range found {
				out.Matches = append(out.Matches, match(m))
			}
			return out, err
		})
}

// writeTool returns the tool sandbox_fs:write.
func writeTool() Tool {
	return fileTool("write", itsPath,
		"Writes a file; missing directories are created. An existing file is replaced, unless mode says otherwise.",
		pathArg("the file")+`,
		"content":{"type":"string","description":"what to write"},
		"encoding":{"type":"string","enum":["text","base64"],"default":"text","description":"text (UTF-8) or base64, for binary files"},
		"mode":{"type":"string","enum":["replace","create","append"],"default":"replace","description":"replace: overwrite the file; create: fail if it exists; append: add to its end"}},"required":["path","content"]`, false,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct {
			Path, Content, Encoding, Mode string
		},
		) (any, error) {
			data := []byte(a.Content)
			if a.Encoding == "base64" {
				var err error
				if data, err = base64.StdEncoding.DecodeString(a.Content); err != nil {
					return nil, failf("content is not base64: %v", err)
				}
			}
			mode := map[string]agent.WriteMode{"create": agent.Create, "append": agent.Append}
			m, ok := mode[a.Mode]
			if !ok {
				m = agent.Replace
			}
			f, err := conn.Write(ctx, inside(a.Path), data, m)
			return entryOf(f), err
		})
}

// done is the result of a tool that returns nothing else.
type done struct {
	Path string `json:"path"`
}

// mkdirTool returns the tool sandbox_fs:mkdir.
func mkdirTool() Tool {
	return fileTool("mkdir", itsPath, "Creates a directory, with its parents; an existing one is left unchanged.",
		pathArg("the directory")+`},"required":["path"]`, false,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct{ Path string }) (any, error) {
			return done{a.Path}, conn.Mkdir(ctx, inside(a.Path))
		})
}

// removeTool returns the tool sandbox_fs:remove.
func removeTool() Tool {
	return fileTool("remove", itsPath,
		"Removes a file or an empty directory; with recursive, a directory and everything in it.",
		pathArg("the file or directory")+
			`,"recursive":{"type":"boolean","default":false,"description":"remove a directory and everything in it"}},"required":["path"]`, false,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct {
			Path      string
			Recursive bool
		},
		) (any, error) {
			return done{a.Path}, conn.Remove(ctx, inside(a.Path), a.Recursive)
		})
}

// moveTool returns the tool sandbox_fs:move.
func moveTool() Tool {
	return fileTool("move", []string{"from", "to"},
		"Moves or renames a file or directory; missing directories are created.",
		`"from":{"type":"string","minLength":1,"description":"what to move"},
		"to":{"type":"string","minLength":1,"description":"its new path, not the directory to put it in"},
		"overwrite":{"type":"boolean","default":false,"description":"replace an existing file"}},"required":["from","to"]`,
		false,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct {
			From, To  string
			Overwrite bool
		},
		) (any, error) {
			return done{a.To}, conn.Move(ctx, inside(a.From), inside(a.To), a.Overwrite)
		})
}

// editTool returns the tool sandbox_fs:edit.
func editTool() Tool {
	return fileTool("edit", itsPath,
		"Replaces a text in a file. The old text must match exactly, and occur only once unless all is set.",
		pathArg("the file")+`,
		"old":{"type":"string","minLength":1,"description":"the existing text, with its line breaks and indentation"},
		"new":{"type":"string","description":"the replacement"},
		"all":{"type":"boolean","default":false,"description":"replace every occurrence"}},"required":["path","old","new"]`,
		false,
		func(ctx context.Context, conn *agent.Conn, _ Call, _ Store, a struct {
			Path, Old, New string
			All            bool
		},
		) (any, error) {
			n, err := conn.Edit(ctx, inside(a.Path), a.Old, a.New, a.All)
			return struct {
				Path         string `json:"path"`
				Replacements int    `json:"replacements"`
			}{a.Path, n}, err
		})
}

// Bounds of files that are sent over the bus, in bytes.
const (
	MaxArtifact = 16 << 20
	// piece is how much is read or written at a time.
	piece = 512 << 10
)

// uploadTool returns the tool sandbox_fs:upload.
func uploadTool() Tool {
	return fileTool("upload", itsPath,
		"Copies an artifact of this session to a file in the sandbox; missing directories are created, "+
			"an existing file is replaced.",
		`"artifact":{"type":"string","minLength":1,"description":"the artifact's ref, as given in a result"},`+
			pathArg("the file to write")+`},"required":["artifact","path"]`, false,
		func(ctx context.Context, conn *agent.Conn, c Call, store Store, a struct{ Artifact, Path string }) (any, error) {
			own := string(c.Agent) + "/" + string(c.Session) + "/"
			if path.Clean(a.Artifact) != a.Artifact || len(a.Artifact) <= len(own) || a.Artifact[:len(own)] != own {
				return nil, failf("%.200q is not an artifact of this session; use a ref from a result", a.Artifact)
			}
			data, err := store.GetArtifact(ctx, a.Artifact)
			if errors.Is(err, bus.ErrNotFound) {
				return nil, failf("artifact %.200q not found; artifacts are deleted after some time", a.Artifact)
			}
			if err != nil {
				return nil, failf("fetching the artifact: %v", err)
			}
			return writeAll(ctx, conn, inside(a.Path), data)
		})
}

// writeAll writes a file in pieces.
func writeAll(ctx context.Context, conn *agent.Conn, name string, data []byte) (any, error) {
	mode := agent.Replace
	for {
		n := min(len(data), piece)
		f, err := conn.Write(ctx, name, data[:n], mode)
		if err != nil || n == len(data) {
			return entryOf(f), err
		}
		data, mode = data[n:], agent.Append
	}
}

// Artifact is a file that is kept outside of the sandbox.
type Artifact struct {
	Path      string `json:"path"` // in the sandbox
	Ref       string `json:"ref"`  // its name in the object store "artifacts"
	MediaType string `json:"media_type"`
	Bytes     int64  `json:"bytes"`
}

// downloadTool returns the tool sandbox_fs:download.
func downloadTool() Tool {
	return fileTool("download", itsPath,
		fmt.Sprintf("Hands a file of the sandbox, of at most %d MiB, to the user as an artifact; returns its ref.",
			MaxArtifact>>20),
		pathArg("the file")+`},"required":["path"]`, true,
		func(ctx context.Context, conn *agent.Conn, c Call, store Store, a struct{ Path string }) (any, error) {
			return Keep(ctx, conn, c, store, inside(a.Path))
		})
}

// Keep puts a file of the sandbox into the store, under the call's prefix.
func Keep(ctx context.Context, conn *agent.Conn, c Call, store Store, name string) (Artifact, error) {
	data, err := readAll(ctx, conn, name, MaxArtifact)
	if err != nil {
		return Artifact{}, err
	}
	return keep(ctx, c, store, name, mediaType(name, data), data)
}

func keep(ctx context.Context, c Call, store Store, name, media string, data []byte) (Artifact, error) {
	safe := path.Clean(name)
	if !result.ValidPath(safe) {
		return Artifact{}, failf("%.200q: an artifact's path must be relative to /workspace, "+
			"with at most %d bytes and no control characters", name, result.MaxPath)
	}
	out := Artifact{Path: safe, Ref: c.Prefix() + safe, MediaType: media, Bytes: int64(len(data))}
	if err := store.PutArtifact(ctx, out.Ref, data); err != nil {
		return Artifact{}, fmt.Errorf("storing %s: %w", name, err)
	}
	return out, nil
}

// readAll reads a file of at most that many bytes. The file may change meanwhile; each part
// is as it was when read.
func readAll(ctx context.Context, conn *agent.Conn, name string, most int64) ([]byte, error) {
	var all []byte
	for {
		data, size, err := conn.Read(ctx, name, int64(len(all)), piece)
		if err != nil {
			return nil, err
		}
		if size > most || int64(len(all)+len(data)) > most {
			return nil, failf("%s has %d bytes, the limit is %d", name, size, most)
		}
		all = append(all, data...)
		if len(data) == 0 || int64(len(all)) >= size {
			return all, nil
		}
	}
}

var errNotText = errors.New("not a UTF-8 text; read it with encoding base64, or hand it over with sandbox_fs:download")

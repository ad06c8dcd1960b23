package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/runes"
	"skandha.dev/services/sandbox/agent"
)

// Bounds of one read. They fit into a result without truncation.
const (
	maxText   = 12 << 10 // bytes
	maxBinary = 8 << 10  // bytes before base64, which adds a third
	maxScan   = 32 << 20 // bytes that are searched for a line
	manyLines = 10_000
)

type content struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`   // bytes of the file
	Offset     int64  `json:"offset"` // where content begins, in units
	Unit       string `json:"unit"`   // "lines" or "bytes"
	Encoding   string `json:"encoding"`
	Content    string `json:"content"`
	Truncated  bool   `json:"truncated,omitempty"`   // there is more
	NextOffset int64  `json:"next_offset,omitempty"` // where to continue
	Note       string `json:"note,omitempty"`
}

type readArgs struct {
	Path, Encoding, Unit string
	Offset, Limit        int64
}

// readTool returns the tool sandbox_fs:read.
func readTool() Tool {
	return fileTool("read", itsPath,
		fmt.Sprintf("Reads a file, or a part of it: text by lines (default) or by bytes, or binary files as base64. "+
			"It returns at most %d KiB (base64: %d KiB of the file) at a time and, if there is more, next_offset: "+
			"call again with it as offset. A picture (PNG, JPEG, GIF or WebP) or PDF of at most %d MiB is shown to you whole, "+
			"unless encoding is base64.", maxText>>10, maxBinary>>10, result.MaxShown>>20),
		pathArg("the file")+fmt.Sprintf(`,
		"encoding":{"type":"string","enum":["text","base64"],"default":"text","description":"text (UTF-8) or base64"},
		"unit":{"type":"string","enum":["lines","bytes"],"default":"lines","description":"what offset and limit count; base64 always counts bytes"},
		"offset":{"type":"integer","minimum":0,"default":0,"description":"how many lines or bytes to skip at the beginning"},
		"limit":{"type":"integer","minimum":1,"maximum":%d,"description":"maximum number of lines or bytes to read; default: as many as fit"}},"required":["path"]`, 1<<20), true,
		func(ctx context.Context, conn *agent.Conn, c Call, store Store, a readArgs) (any, error) {
			name := inside(a.Path)
			if a.Encoding == "base64" {
				return readBinary(ctx, conn, name, a)
			}
			head, _, err := conn.Read(ctx, name, 0, result.Sniffed)
			switch {
			case err != nil:
				return nil, err
			case result.ShownAs(head) != "":
				return show(ctx, conn, c, store, name)
			case a.Unit == "bytes":
				return readBytes(ctx, conn, name, a)
			}
			return readLines(ctx, conn, name, a)
		})
}

func atMost(limit, most int64) int64 {
	if limit <= 0 || limit > most {
		return most
	}
	return limit
}

func readBinary(ctx context.Context, conn *agent.Conn, name string, a readArgs) (content, error) {
	data, size, err := conn.Read(ctx, name, a.Offset, atMost(a.Limit, maxBinary))
	if err != nil {
		return content{}, err
	}
	out := content{
		Path: a.Path, Size: size, Offset: a.Offset, Unit: "bytes", Encoding: "base64",
		Content: base64.StdEncoding.EncodeToString(data),
	}
	return out.upTo(a.Offset+int64(len(data)), size), nil
}

// upTo sets Truncated and NextOffset if there is more.
func (c content) upTo(next, size int64) content {
	if next < size {
		c.Truncated, c.NextOffset = true, next
	}
	return c
}

func readBytes(ctx context.Context, conn *agent.Conn, name string, a readArgs) (content, error) {
	limit := int(atMost(a.Limit, maxText))
	// A few more bytes show whether a character is cut.
	buf, size, err := conn.Read(ctx, name, a.Offset, int64(limit+utf8.UTFMax))
	if err != nil {
		return content{}, err
	}
	start, end := runes.Whole(buf, limit, a.Offset > 0)
	if !isText(buf[start:end]) {
		return content{}, failf("%s: %v", a.Path, errNotText)
	}
	out := content{
		Path: a.Path, Size: size, Offset: a.Offset + int64(start), Unit: "bytes", Encoding: "text",
		Content: string(buf[start:end]),
	}
	return out.upTo(a.Offset+int64(end), size), nil
}

func isText(b []byte) bool { return utf8.Valid(b) && !slices.Contains(b, 0) }

// readLines returns as many whole lines as fit. A line that is too long by itself is cut.
func readLines(ctx context.Context, conn *agent.Conn, name string, a readArgs) (content, error) {
	out := content{Path: a.Path, Offset: a.Offset, Unit: "lines", Encoding: "text"}
	limit := atMost(a.Limit, manyLines)
	var text, line []byte
	var at, pos int64 // the next line's number, and its position in the file
	for {
		data, size, err := conn.Read(ctx, name, pos, piece)
		if err != nil {
			return content{}, err
		}
		out.Size = size
		pos += int64(len(data))
		last := len(data) == 0 || pos >= size
		for len(data) > 0 {
			part, rest, whole := bytes.Cut(data, []byte("\n"))
			data = rest
			if at >= a.Offset && len(line) <= maxText {
				line = append(line, part[:min(len(part), maxText+1)]...)
			}
			if !whole {
				break
			}
			at++
			if at <= a.Offset {
				line = line[:0]
				continue
			}
			var full bool
			if text, full = out.add(text, line, "\n"); full {
				return out.lines(text, at-1, true)
			}
			if line = line[:0]; at == a.Offset+limit {
				return out.lines(text, at, pos-int64(len(data)) < size)
			}
		}
		switch {
		case last && len(line) > 0:
			var full bool
			if text, full = out.add(text, line, ""); full {
				return out.lines(text, at, true)
			}
			return out.lines(text, at+1, false)
		case last && at < a.Offset:
			return content{}, failf("%s has %d lines; offset %d is beyond the end", a.Path, at, a.Offset)
		case last:
			return out.lines(text, at, false)
		case pos >= maxScan && at < a.Offset:
			return content{}, failf("line %d is not within the first %d MiB of %s; use unit bytes, or python:execute", a.Offset,
				maxScan>>20, a.Path)
		}
	}
}

// add appends a line, or reports that it does not fit.
func (c *content) add(text, line []byte, end string) (_ []byte, full bool) {
	if len(text)+len(line)+len(end) <= maxText {
		return append(append(text, line...), end...), false
	}
	if len(text) > 0 {
		return text, true
	}
	_, n := runes.Whole(line, maxText-len(end), false)
	c.Note = "the line is too long and was cut; read it with unit bytes"
	return append(append(text, line[:n]...), end...), false
}

func (c content) lines(text []byte, next int64, more bool) (content, error) {
	if !isText(text) {
		return content{}, failf("%s: %v", c.Path, errNotText)
	}
	c.Content = string(text)
	if more {
		c.Truncated, c.NextOffset = true, next
	}
	return c, nil
}

// mediaType returns the media type by name, or else by content.
func mediaType(name string, data []byte) string {
	ext := strings.ToLower(path.Ext(name))
	if t, ok := mediaTypes[ext]; ok {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return http.DetectContentType(data)
}

// mediaTypes are the types that must not depend on the host.
var mediaTypes = map[string]string{
	".csv": "text/csv", ".gif": "image/gif", ".html": "text/html", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".json": "application/json",
	".md":   "text/markdown", ".parquet": "application/vnd.apache.parquet", ".pdf": "application/pdf", ".png": "image/png",
	".py":  "text/x-python",
	".svg": "image/svg+xml", ".txt": "text/plain",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".zip": "application/zip",
}

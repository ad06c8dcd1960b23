package proposal

import (
	"encoding/json"
	"regexp"
	"strings"

	"skandha.dev/pkg/event"
)

// Files holds the contents that were read and written in this session, as far as this
// terminal has seen it. Edits are compared with them.
type Files struct {
	known map[string]content
}

type content struct {
	content, how string
}

// Bounds on the remembered contents.
const (
	maxFiles     = 64
	maxFileBytes = 256 << 10
)

var reads = regexp.MustCompile(`(^|:)(read|read_file)$`)

// Learn records the result of a call; args are nil if they were not seen.
func (f *Files) Learn(p event.ActCompleted, args json.RawMessage) {
	if !p.Result.Success {
		return
	}
	fs, ok := Fields(args)
	if !ok {
		clear(f.known) // it could have changed any file
		return
	}
	for _, arg := range []string{"from", "to"} {
		if moved, ok := Text(fs, arg); ok {
			delete(f.known, place(p.Tool, moved))
		}
	}
	path, ok := Text(fs, "path")
	if !ok {
		return
	}
	now := content{}
	switch mode, _ := Text(fs, "mode"); {
	case reads.MatchString(p.Tool):
		var data struct {
			Content    *string         `json:"content"`
			Offset     int64           `json:"offset"`
			NextOffset json.RawMessage `json:"next_offset"`
			Truncated  bool            `json:"truncated"`
		}
		if json.Unmarshal(p.Result.Data, &data) != nil || data.Content == nil || data.Offset != 0 ||
			len(data.NextOffset) > 0 || data.Truncated {
			return
		}
		now = content{*data.Content, "read"}
	case writes.MatchString(p.Tool) && !strings.HasSuffix(p.Tool, "append_file") && mode != "append":
		now.content, _ = Text(fs, "content")
		now.how = "written"
	}
	key := place(p.Tool, path)
	if f.known == nil || len(f.known) >= maxFiles {
		f.known = map[string]content{}
	}
	if now.how == "" || len(now.content) > maxFileBytes {
		delete(f.known, key)
		return
	}
	f.known[key] = now
}

func (f *Files) get(tool, path string) (content, bool) {
	c, ok := f.known[place(tool, path)]
	return c, ok
}

// place returns a key that keeps the files of different groups of tools apart.
func place(tool, path string) string {
	return tool[:max(strings.LastIndex(tool, ":"), 0)] + " " + path
}

package proposal

import (
	"regexp"
	"strings"
)

// Edit is the change that a call would make to a file.
type Edit struct {
	About  string // what becomes of the file, before a diff
	Path   string // empty: not given
	Before string
	After  string
	Shown  []string // the arguments that the diff represents
	// Whole means that After is all of the file, and Before too unless it is empty.
	Whole bool
}

var oldAndNew = [][2]string{
	{"old", "new"}, {"old_text", "new_text"}, {"old_string", "new_string"}, {"old_str", "new_str"}, {"before", "after"},
}

var writes = regexp.MustCompile(`(^|:)(write|write_file|append_file)$`)

// EditOf returns the edit that a call makes, nil if none. The web page uses the same rules.
func EditOf(tool string, fs []Field, known *Files) *Edit {
	for _, pair := range oldAndNew {
		before, ok := Text(fs, pair[0])
		after, also := Text(fs, pair[1])
		if ok && also {
			path, _ := Text(fs, "path")
			return &Edit{About: "replaces this text:", Path: path, Before: before, After: after, Shown: pair[:]}
		}
	}
	content, ok := Text(fs, "content")
	if !ok || !writes.MatchString(tool) {
		return nil
	}
	path, _ := Text(fs, "path")
	mode, _ := Text(fs, "mode")
	e := &Edit{Path: path, After: content, Shown: []string{"content"}, Whole: true}
	was, isKnown := known.get(tool, path)
	switch {
	case strings.HasSuffix(tool, "append_file"), mode == "append":
		e.About, e.Whole = "appends:", false
	case mode == "create", mode == "" && strings.HasSuffix(tool, "write_file"):
		e.About = "creates a new file; does not replace an existing one:"
	case isKnown:
		e.About, e.Before = "compared with what was last "+was.how+" in this session:", was.content
	default:
		e.About = "replaces the whole content:"
	}
	return e
}

package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"skandha.dev/services/skandha/safetext"
)

// field is a field of a call's arguments, exactly as sent.
type field struct {
	name string
	raw  json.RawMessage
	text *string // if the value is a string
}

// fields returns an object's fields in their order. It reports false if the arguments
// are not an object, or if some readers could take two names for the same: they must
// then be shown unchanged.
func fields(args json.RawMessage) ([]field, bool) {
	d := json.NewDecoder(bytes.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []field
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		f := field{name: name}
		if d.Decode(&f.raw) != nil ||
			slices.ContainsFunc(out, func(o field) bool { return strings.EqualFold(o.name, name) }) {
			return nil, false
		}
		var text string
		if f.raw[0] == '"' && json.Unmarshal(f.raw, &text) == nil {
			f.text = &text
		}
		out = append(out, f)
	}
	_, err := d.Token()
	if err != nil {
		return nil, false
	}
	_, err = d.Token()
	return out, err == io.EOF
}

// object writes fields exactly as they were sent.
func object(fs []field) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fs {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.name) // a string
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.raw)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// literal matches a JSON string.
var literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readable removes unnecessary escapes from JSON strings: \u003c becomes <. An escape
// that does not encode a character is kept.
func readable(data json.RawMessage) json.RawMessage {
	return literal.ReplaceAllFunc(data, func(lit []byte) []byte {
		var text string
		if !bytes.ContainsRune(lit, '\\') || json.Unmarshal(lit, &text) != nil || strings.ContainsRune(text, utf8.RuneError) {
			return lit
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(text) != nil {
			return lit
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	})
}

// argRows formats arguments as JSON for a decision: nothing is hidden or left out.
// Values that fit are put on one row.
func argRows(args json.RawMessage, width int) []string {
	var b bytes.Buffer
	if json.Indent(&b, readable(args), "", "  ") != nil {
		b.Reset()
		b.Write(args)
	} else if one := onOneRow(b.String()); cells(one) <= width {
		return []string{one}
	}
	var out []string
	for line := range strings.SplitSeq(safetext.Visible(b.String()), "\n") {
		out = append(out, hardwrap(line, width)...)
	}
	return out
}

// onOneRow removes what json.Indent has added: JSON strings cannot contain a line feed.
func onOneRow(indented string) string {
	var b strings.Builder
	for i, line := range strings.Split(safetext.Visible(indented), "\n") {
		line = strings.TrimLeft(line, " ")
		if i > 0 && strings.HasSuffix(b.String(), ",") {
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	return b.String()
}

// exactLine formats a line of a text that a user decides about.
func exactLine(s string) string {
	return safetext.Visible(strings.ReplaceAll(s, "\t", "⇥   "))
}

// callRows shows what a call would do: an edit as a diff, multi-line strings as lines,
// and the other arguments as JSON.
func callRows(tool string, args json.RawMessage, files *files, width int) []string {
	fs, ok := fields(args)
	if !ok {
		return argRows(args, width)
	}
	if e := editOf(tool, fs, files); e != nil {
		out := argRows(object(without(fs, e.shown...)), width)
		out = append(out, wrap(dim.of(e.about), width, "", "")...)
		return append(out, diffRows(e.before, e.after, width)...)
	}
	var texts []field
	for _, f := range fs {
		if f.text != nil && strings.Contains(strings.TrimRight(*f.text, "\n"), "\n") {
			texts = append(texts, f)
		}
	}
	rest := fs
	var out []string
	for _, f := range texts {
		rest = without(rest, f.name)
		out = append(out, hardwrap(safetext.Visible(f.name)+":", width)...)
		for line := range strings.SplitSeq(*f.text, "\n") {
			for _, row := range hardwrap(exactLine(line), width-2) {
				out = append(out, "  "+cyan.of(row))
			}
		}
	}
	if len(rest) > 0 || len(fs) == 0 {
		out = append(argRows(object(rest), width), out...)
	}
	return out
}

func without(fs []field, names ...string) []field {
	return slices.DeleteFunc(slices.Clone(fs), func(f field) bool { return slices.Contains(names, f.name) })
}

func textOf(fs []field, name string) (string, bool) {
	i := slices.IndexFunc(fs, func(f field) bool { return f.name == name && f.text != nil })
	if i < 0 {
		return "", false
	}
	return *fs[i].text, true
}

// edit is the change that a call would make to a file.
type edit struct {
	about, before, after string
	shown                []string // the arguments that the diff represents
}

var oldAndNew = [][2]string{
	{"old", "new"}, {"old_text", "new_text"}, {"old_string", "new_string"}, {"old_str", "new_str"}, {"before", "after"},
}

var writes = regexp.MustCompile(`(^|:)(write|write_file|append_file)$`)

// editOf returns the edit that a call makes, nil if none. The web page uses the same rules.
func editOf(tool string, fs []field, known *files) *edit {
	for _, pair := range oldAndNew {
		before, ok := textOf(fs, pair[0])
		after, also := textOf(fs, pair[1])
		if ok && also {
			return &edit{"replaces this text:", before, after, pair[:]}
		}
	}
	content, ok := textOf(fs, "content")
	if !ok || !writes.MatchString(tool) {
		return nil
	}
	path, _ := textOf(fs, "path")
	mode, _ := textOf(fs, "mode")
	e := &edit{after: content, shown: []string{"content"}}
	was, isKnown := known.get(tool, path)
	switch {
	case strings.HasSuffix(tool, "append_file"), mode == "append":
		e.about = "appends:"
	case mode == "create", mode == "" && strings.HasSuffix(tool, "write_file"):
		e.about = "creates a new file; does not replace an existing one:"
	case isKnown:
		e.about, e.before = "compared with what was last "+was.how+" in this session:", was.content
	default:
		e.about = "replaces the whole content:"
	}
	return e
}

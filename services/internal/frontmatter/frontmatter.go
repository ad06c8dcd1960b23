// Package frontmatter reads Markdown files that begin with settings in YAML, between two
// lines of three dashes.
//
// Failure: a file is never read in part. A symbolic link that leaves the directory, a file that
// is not regular, too large or not UTF-8, and settings that do not end are errors.
package frontmatter

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/internal/configfile"
)

// Read reads a regular file below root of at most limit bytes. A FIFO does not block it. If
// there is no such file, the error is [os.ErrNotExist].
func Read(root *os.Root, name string, limit int) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%s is too large; the limit is %d bytes", name, limit)
	}
	return b, nil
}

// File is a file's two parts.
type File struct {
	Head []byte // the settings, with the line numbers of the file
	Body string // the text after them, without white space around it
	Line int    // of the second line of dashes
}

// fence begins and ends the settings.
const fence = "---"

// Split splits a file. A byte order mark is ignored, and CRLF is read as LF. Errors are of type
// [configfile.Problems].
func Split(b []byte) (File, error) {
	if at := invalid(b); at >= 0 {
		line := 1 + bytes.Count(b[:at], []byte("\n"))
		return File{}, problem(line, "the text is not UTF-8, or contains a NUL byte")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(b), "\ufeff"), "\r\n", "\n")
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != fence {
		return File{}, problem(1, "the file must begin with settings between two lines of "+fence)
	}
	head := strings.Builder{}
	for line := 2; rest != ""; line++ {
		var next string
		next, rest, _ = strings.Cut(rest, "\n")
		if strings.TrimRight(next, " \t") == fence {
			return File{[]byte("\n" + head.String()), strings.TrimSpace(rest), line}, nil
		}
		head.WriteString(next + "\n")
	}
	return File{}, problem(1, "the settings do not end: a second line of "+fence+" is missing")
}

// invalid returns the index of the first byte that is no text; -1 if there is none.
func invalid(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == 0 || r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// Decode decodes the settings strictly; see [configfile.Decode]. A key without a value is an
// error, too: it would be the same as a missing key, and a missing key restricts nothing.
func (f File) Decode(into any) error {
	err := configfile.Decode(f.Head, into)
	var doc yaml.Node
	if yaml.Unmarshal(f.Head, &doc) == nil {
		err = configfile.Join(err, empty(&doc))
	}
	return err
}

func empty(n *yaml.Node) error {
	var errs []error
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && c.Tag == "!!null" {
			key := n.Content[i-1]
			errs = append(errs, problem(key.Line, key.Value+" is empty; remove it, or give it a value"))
		}
		errs = append(errs, empty(c))
	}
	return configfile.Join(errs...)
}

func problem(line int, text string) error { return configfile.Problems{{Line: line, Text: text}} }

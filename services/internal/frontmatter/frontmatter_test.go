package frontmatter_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/internal/frontmatter"
)

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct{ file, head, body, wrong string }{
		"plain":             {"---\na: 1\n---\n\nHello.\n", "\na: 1\n", "Hello.", ""},
		"no settings":       {"---\n---\nHello.", "\n", "Hello.", ""},
		"a byte order mark": {"\ufeff---\na: 1\n---\nHello.", "\na: 1\n", "Hello.", ""},
		"CRLF":              {"---\r\na: 1\r\n---\r\nOne.\r\nTwo.\r\n", "\na: 1\n", "One.\nTwo.", ""},
		"spaces after":      {"---  \na: 1\n--- \nHello.", "\na: 1\n", "Hello.", ""},
		"dashes in the body": {
			"---\na: 1\n---\nOne.\n---\nTwo.", "\na: 1\n", "One.\n---\nTwo.", "",
		},
		"no body":            {"---\na: 1\n---", "\na: 1\n", "", ""},
		"empty":              {"", "", "", "line 1: the file must begin"},
		"only text":          {"Hello.", "", "", "line 1: the file must begin"},
		"a line before":      {"\n---\na: 1\n---\nx", "", "", "line 1: the file must begin"},
		"half-written":       {"---\na: 1\nb", "", "", "line 1: the settings do not end"},
		"half of a fence":    {"---\na: 1\n--", "", "", "line 1: the settings do not end"},
		"not UTF-8":          {"---\na: 1\n---\nab\xff", "", "", "line 4: the text is not UTF-8"},
		"UTF-16":             {"\xff\xfe-\x00-\x00", "", "", "line 1: the text is not UTF-8"},
		"a NUL byte":         {"---\na: 1\n---\n\nx\x00", "", "", "line 5: "},
		"replaced by sender": {"---\n---\n\ufffd", "\n", "\ufffd", ""}, // U+FFFD itself is text
	} {
		f, err := frontmatter.Split([]byte(c.file))
		if c.wrong == "" && (err != nil || string(f.Head) != c.head || f.Body != c.body) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %s", name, err, c.wrong)
		}
	}
}

// An empty value would restrict nothing.
func TestAKeyWithoutAValueIsRefused(t *testing.T) {
	f, err := frontmatter.Split([]byte("---\nlist:\nin:\n  deep: ~\n  set: 1\nmore: 2\n---\nx"))
	if err != nil {
		t.Fatal(err)
	}
	var into struct {
		List []string       `yaml:"list"`
		In   map[string]int `yaml:"in"`
	}
	err = f.Decode(&into)
	for _, want := range []string{"line 2: list is empty", "line 4: deep is empty", "line 6: more: unknown key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestReadIsConfined(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret.md")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	write := func(name string, size int) {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	write(outside, 1)
	write(at("whole.md"), 10)
	write(at("large.md"), 11)
	if err := errors.Join(os.Mkdir(at("dir.md"), 0o700), syscall.Mkfifo(at("pipe.md"), 0o600),
		os.Symlink(outside, at("out.md")), os.Symlink("whole.md", at("in.md"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"whole.md": "", "in.md": "", "large.md": "too large; the limit is 10 bytes", "dir.md": "not a regular file",
		"pipe.md": "not a regular file", "out.md": "escapes", "../x.md": "escapes",
	} {
		b, err := frontmatter.Read(root, name, 10)
		if want == "" && (err != nil || len(b) != 10) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %d bytes, %v, want %q", name, len(b), err, want)
		}
	}
	if _, err := frontmatter.Read(root, "none.md", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

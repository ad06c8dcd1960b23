package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Bounds of what is kept of what was typed.
const (
	maxTyped      = 1000
	maxTypedBytes = 16 << 10 // of one entry; longer ones are not kept
)

// typed is what was typed before, the latest last, and the way through it. The file
// has an entry a line, quoted as in Go; it is its owner's alone.
type typed struct {
	file  string
	all   []string
	at    int    // len(all): at what is being typed
	draft string // what was being typed
	held  string // while the editor is used for something else
}

// openTyped reads what was kept. A file that cannot be read is as good as none.
func openTyped(file string) *typed {
	t := &typed{file: file}
	if file == "" {
		return t
	}
	f, err := os.Open(file) //nolint:gosec // a file of the data directory
	if err != nil {
		return t
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 8*maxTypedBytes)
	for s.Scan() {
		if text, err := strconv.Unquote(s.Text()); err == nil {
			t.all = append(t.all, text)
		}
	}
	if len(t.all) > 2*maxTyped {
		t.all = t.all[len(t.all)-maxTyped:]
		_ = t.rewrite() // it stays long, and is cut the next time
	}
	t.at = len(t.all)
	return t
}

// add keeps an entry, unless it begins with a space or is the one before.
func (t *typed) add(text string) error {
	defer func() { t.at, t.draft = len(t.all), "" }()
	if strings.TrimSpace(text) == "" || strings.HasPrefix(text, " ") || len(text) > maxTypedBytes ||
		len(t.all) > 0 && t.all[len(t.all)-1] == text {
		return nil
	}
	t.all = append(t.all, text)
	if t.file == "" {
		return nil
	}
	f, err := os.OpenFile(t.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // a file of the data directory
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(t.file), 0o700); err == nil {
			f, err = os.OpenFile(t.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // likewise
		}
	}
	if err != nil {
		return fmt.Errorf("keeping what was typed: %w", err)
	}
	_, err = f.WriteString(strconv.Quote(text) + "\n")
	return errors.Join(err, f.Close())
}

// rewrite cuts the file.
func (t *typed) rewrite() error {
	var b strings.Builder
	for _, text := range t.all {
		b.WriteString(strconv.Quote(text) + "\n")
	}
	next := t.file + ".new"
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, t.file)
}

// back goes to the entry before; now is what the editor holds.
func (t *typed) back(now string) (string, bool) {
	if t.at == 0 {
		return "", false
	}
	if t.at == len(t.all) {
		t.draft = now
	}
	t.at--
	return t.all[t.at], true
}

// forth goes to the entry after, in the end to what was being typed.
func (t *typed) forth() (string, bool) {
	if t.at >= len(t.all) {
		return "", false
	}
	t.at++
	if t.at == len(t.all) {
		return t.draft, true
	}
	return t.all[t.at], true
}

func (t *typed) hold(text string) { t.held = text }

func (t *typed) release() string {
	text := t.held
	t.held = ""
	return text
}

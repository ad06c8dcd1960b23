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

// Bounds of the history.
const (
	maxEntries    = 1000
	maxEntryBytes = 16 << 10 // per entry; longer ones are not kept
)

// history holds the earlier inputs, latest last, and the position in them. Its file has
// one entry per line, quoted as in Go; only its owner can read it.
type history struct {
	file  string
	all   []string
	at    int    // len(all): at the draft
	draft string // the unfinished text
	held  string // the text while the editor is used for something else
}

// openHistory reads the history. It ignores a file that cannot be read.
func openHistory(file string) *history {
	t := &history{file: file}
	if file == "" {
		return t
	}
	f, err := os.Open(file) //nolint:gosec // a file of the data directory
	if err != nil {
		return t
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 8*maxEntryBytes)
	for s.Scan() {
		if text, err := strconv.Unquote(s.Text()); err == nil {
			t.all = append(t.all, text)
		}
	}
	if len(t.all) > 2*maxEntries {
		t.all = t.all[len(t.all)-maxEntries:]
		_ = t.rewrite() // on failure it is cut the next time
	}
	t.at = len(t.all)
	return t
}

// add adds an entry, unless it begins with a space or equals the previous one.
func (t *history) add(text string) error {
	defer func() { t.at, t.draft = len(t.all), "" }()
	if strings.TrimSpace(text) == "" || strings.HasPrefix(text, " ") || len(text) > maxEntryBytes ||
		len(t.all) > 0 && t.all[len(t.all)-1] == text {
		return nil
	}
	t.all = append(t.all, text)
	if t.file == "" {
		return nil
	}
	//nolint:gosec // a file of the data directory
	f, err := os.OpenFile(t.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(t.file), 0o700); err == nil {
			f, err = os.OpenFile(t.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // likewise
		}
	}
	if err != nil {
		return fmt.Errorf("saving the history: %w", err)
	}
	_, err = f.WriteString(strconv.Quote(text) + "\n")
	return errors.Join(err, f.Close())
}

// rewrite replaces the file with the kept entries.
func (t *history) rewrite() error {
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

// back returns the previous entry; now is the editor's text.
func (t *history) back(now string) (string, bool) {
	if t.at == 0 {
		return "", false
	}
	if t.at == len(t.all) {
		t.draft = now
	}
	t.at--
	return t.all[t.at], true
}

// forth returns the next entry, or finally the draft.
func (t *history) forth() (string, bool) {
	if t.at >= len(t.all) {
		return "", false
	}
	t.at++
	if t.at == len(t.all) {
		return t.draft, true
	}
	return t.all[t.at], true
}

func (t *history) hold(text string) { t.held = text }

func (t *history) release() string {
	text := t.held
	t.held = ""
	return text
}

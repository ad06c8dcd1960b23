package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// logoutsFile is the file in the data directory that stores logouts. Each line has a login,
// and the time, in Unix seconds, when its cookies have expired anyway.
const logoutsFile = "ui-logouts"

// logouts holds the logins that were ended before they expired. Without a path they are
// lost when the process ends.
type logouts struct {
	path string
	mu   sync.Mutex
	ends map[string]time.Time
}

func readLogouts(dataDir string) (*logouts, error) {
	l := &logouts{ends: map[string]time.Time{}}
	if dataDir == "" {
		return l, nil
	}
	l.path = filepath.Join(dataDir, logoutsFile)
	b, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the stored logouts: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		login, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if s, err := strconv.ParseInt(at, 10, 64); err == nil && time.Unix(s, 0).After(time.Now()) {
			l.ends[login] = time.Unix(s, 0)
		}
	}
	return l, nil
}

func (l *logouts) has(login string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.ends[login]
	return ok
}

// add stores a logout and removes expired ones. If it returns an error, the logout is only
// kept until the process ends.
func (l *logouts) add(login string, until time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[login] = until
	var text strings.Builder
	for login, at := range l.ends {
		if time.Now().After(at) {
			delete(l.ends, login)
			continue
		}
		fmt.Fprintf(&text, "%s %d\n", login, at.Unix())
	}
	if l.path == "" {
		return nil
	}
	return writeWhole(l.path, text.String())
}

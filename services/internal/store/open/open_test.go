package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/test/redistest"
)

func TestStore(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for where, file := range map[string]string{
		"sqlite://" + filepath.ToSlash(dir) + "/by%20url.db": "by url.db",
		filepath.Join(dir, "by path.db"):                     "by path.db",
		"relative/100%.db":                                   "relative/100%.db",
	} {
		use(t, where)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestRedis(t *testing.T) {
	use(t, redistest.Start(t)+"?dial_timeout=1m&read_timeout=1m&write_timeout=1m")
}

func use(t *testing.T, where string) {
	t.Helper()
	s, err := open.Store(t.Context(), where, nil)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if err := errors.Join(s.SetMark(t.Context(), "floor", 1), s.Close()); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

func TestRefused(t *testing.T) {
	const allowed = "redis, rediss, sqlite"
	for where, says := range map[string]string{
		"":                                 allowed,
		"postgres://user:hunter2@db/x":     `"postgres"; allowed are ` + allowed,
		"file:///x.db":                     allowed,
		"sqlite://relative/x.db":           "sqlite:///absolute/path",
		"sqlite://user:hunter2@host/x.db":  "sqlite:///absolute/path",
		"sqlite:///x.db?mode=ro":           "sqlite:///absolute/path",
		"sqlite://":                        "sqlite:///absolute/path",
		"sqlite:///%zz:hunter2":            "not a sqlite URL",
		"redis://user:hunter2@host/notadb": "invalid database number",
	} {
		s, err := open.Store(t.Context(), where, nil)
		if s != nil || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: store %v, error %v", where, s, err)
			continue
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error is %v", where, err)
		}
	}
}

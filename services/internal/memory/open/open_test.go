package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/open"
	"skandha.dev/services/test/redistest"
)

func TestFiles(t *testing.T) {
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

// A server that is not there is no error before it is used.
func TestChroma(t *testing.T) {
	s, err := open.Store(t.Context(), "chroma+http://:hunter2@127.0.0.1:1/behind?tenant=a&database=b&prefix=c.", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Ping(t.Context())
	if !errors.Is(err, index.ErrUnavailable) || !strings.Contains(err.Error(), "chroma at 127.0.0.1:1") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func use(t *testing.T, where string) {
	t.Helper()
	s, err := open.Store(t.Context(), where, nil, nil)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if err := errors.Join(s.SetPosition(t.Context(), 1), s.Close()); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

func TestRefused(t *testing.T) {
	const allowed = "redis, rediss, chroma+http, chroma+https, plugin, sqlite"
	for where, says := range map[string]string{
		"":                                       allowed,
		"postgres://user:hunter2@db/x":           `"postgres"; allowed are ` + allowed,
		"http://user:hunter2@host":               allowed,
		"sqlite://user:hunter2@host/x.db":        "sqlite:///absolute/path",
		"redis://user:hunter2@host/notadb":       "invalid database number",
		"chroma+http://":                         "chroma+http://host:port",
		"chroma+http://:hunter2@host:1:2":        "chroma URL",
		"chroma+https://:hunter2@host#x":         "chroma+http://host:port",
		"chroma+http://:hunter2@host?color=red":  `parameter "color"`,
		"chroma+http://:hunter2@host?tenant=":    `parameter "tenant"`,
		"chroma+http://:hunter2@host/%zz?prefix": "chroma URL",
		"plugin://index":                         "needs a connection to the bus",
		"plugin://":                              `"" is not the name of a plugin`,
		"plugin://a.b":                           `"a.b" is not the name of a plugin`,
		"plugin://index/path":                    "plugin://NAME",
		"plugin://user:hunter2@index":            "plugin://NAME",
		"plugin://index?collection=a.b":          `parameter "collection"`,
		"plugin://index?timeout=-1s":             `timeout is "-1s"`,
		"plugin://index?color=red":               `parameter "color"`,
	} {
		s, err := open.Store(t.Context(), where, nil, nil)
		if s != nil || !errors.Is(err, index.ErrInvalid) {
			t.Errorf("%q: store %v, error %v", where, s, err)
			continue
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error is %v", where, err)
		}
	}
}

package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/store"
)

// If the file disappears while it is in use, the next call notices it and uses the
// file that is then at the path.
func TestFileGoneWhileInUse(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(path string) error
		left uint64 // the revision that is there then
	}{
		{"deleted", os.Remove, 0},
		{"deleted with its log", func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		}, 0},
		{"deleted with its directory", func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, 0},
		{"replaced by garbage", func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("garbage"), 0o600), os.Rename(path+".new", path))
		}, 0},
		{"replaced by another", func(path string) error { return os.Rename(path+".other", path) }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			other := open(t, path+".other", nil)
			save(t, other, 3)
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s := open(t, path, &log)
			save(t, s, 7)
			if err := errors.Join(s.SetCoverage(t.Context(), "all"), c.do(path)); err != nil {
				t.Fatal(err)
			}
			if what, err := s.Coverage(t.Context()); err != nil || what != "" {
				t.Errorf("it covers %q, %v", what, err)
			}
			if got := rev(t, s); got != c.left {
				t.Errorf("revision %d is there, want %d", got, c.left)
			}
			save(t, s, 9)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := rev(t, open(t, path, nil)); got != 9 {
				t.Errorf("revision %d is in the file, want 9", got)
			}
			if !strings.Contains(log.String(), "deleted or replaced") {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// A file that was cut off while in use, or lost a table, is damaged like one that is
// found so when it is opened.
func TestFileCutOffWhileInUse(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, path string)
	}{
		{"to nothing", func(t *testing.T, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"to nothing, with its log", func(t *testing.T, path string) {
			if err := errors.Join(os.Truncate(path, 0), os.Truncate(path+"-wal", 0)); err != nil {
				t.Fatal(err)
			}
		}},
		{"to its first page", func(t *testing.T, path string) {
			if err := errors.Join(os.Truncate(path, 4096), os.Truncate(path+"-wal", 0)); err != nil {
				t.Fatal(err)
			}
		}},
		{"in its last page", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, info.Size()-4000)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"by a table", func(t *testing.T, path string) { execute(t, path, "DROP TABLE coverage") }},
		{
			"by a column",
			func(t *testing.T, path string) { execute(t, path, "ALTER TABLE coverage RENAME COLUMN what TO that") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			var log bytes.Buffer
			s := open(t, path, &log)
			save(t, s, 7)
			if err := s.SetCoverage(t.Context(), "all"); err != nil {
				t.Fatal(err)
			}
			execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
			c.do(t, path)
			for range 2 { // not every call meets the damage
				if _, err := s.Coverage(t.Context()); err != nil {
					t.Error(err)
				}
				save(t, s, 9)
				rev(t, s)
			}
			if what, err := s.Coverage(t.Context()); err != nil || what != "" {
				t.Errorf("it covers %q, %v", what, err)
			}
			if got := rev(t, s); got != 9 {
				t.Errorf("revision %d is there, want 9", got)
			}
			if !strings.Contains(log.String(), "moved aside") {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// Statistics that were removed by hand cannot be completed exactly, so they start
// over.
func TestStatisticsThatDoNotAgreeBeginAnew(t *testing.T) {
	for _, statement := range []string{
		"DELETE FROM tool", "DELETE FROM recorded", "DELETE FROM recorded WHERE session = 's'", "UPDATE tool SET unknown = 7",
	} {
		path := newPath(t)
		s := open(t, path, nil)
		records := []store.ToolRecord{
			{Key: key, Rev: 5, Deltas: []store.ToolDelta{{Tool: "x", Used: 1}}},
			{Key: store.Key{Agent: "a", Session: "t"}, Rev: 6, Deltas: []store.ToolDelta{{Tool: "x", Used: 1}}},
		}
		for range 2 {
			_, err := s.RecordTools(t.Context(), records)
			if err := errors.Join(err, s.SetCoverage(t.Context(), "all")); err != nil {
				t.Fatal(err)
			}
			if sound, err := s.VerifyTools(t.Context()); !sound || err != nil {
				t.Errorf("%s: before: %v, %v", statement, sound, err)
			}
			execute(t, path, statement)
			if sound, err := s.VerifyTools(t.Context()); sound || err != nil {
				t.Errorf("%s: %v, %v", statement, sound, err)
			}
			what, err := s.Coverage(t.Context())
			heads, headsErr := s.Heads(t.Context(), []store.Key{key})
			if err := errors.Join(err, headsErr); err != nil || what != "" || heads[0].Counted != 0 {
				t.Errorf("%s: it covers %q, %+v, %v", statement, what, heads, err)
			}
		}
	}
}

package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"skandha.dev/pkg/memory"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/sqlite"
	"skandha.dev/services/test/memorytest"
)

func TestStore(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) index.Store { return open(t, newPath(t)) })
}

func TestReopen(t *testing.T) {
	memorytest.RunReopen(t, func(t *testing.T) func() index.Store {
		path := newPath(t)
		return func() index.Store { return open(t, path) }
	})
}

func newPath(tb testing.TB) string { return filepath.Join(tb.TempDir(), "made", "memory.db") }

func open(tb testing.TB, path string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

var tea = index.Entry{Revision: 7, Memory: memory.Memory{
	ID: "m1", Agent: "main", Kind: memory.Fact, Text: "Ann likes tea", Source: memory.Source{Origin: memory.FromPerson},
}, Model: "m", Vector: []float32{1, 0}}

// said is a memory that is found by words alone.
var said = index.Entry{Revision: 6, Memory: memory.Memory{
	ID: "m2", Agent: "main", Kind: memory.Fact, Text: "Bob likes tea", Source: memory.Source{Origin: memory.FromPerson},
}}

// What cannot be read is filled again: the position says so, and the file works.
func TestDamageMovesTheFileAside(t *testing.T) {
	for name, statement := range map[string]string{
		"a table is gone":      "DROP TABLE position",
		"changes are gone":     "DROP TABLE changes",
		"a memory is garbage":  "UPDATE entry SET data = 'garbage'",
		"a vector is garbage":  "UPDATE entry SET vector = x'010203'",
		"a vector is too long": "UPDATE entry SET vector = zeroblob(12)",
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := open(t, path)
			if err := errors.Join(s.Put(t.Context(), []index.Entry{said, tea}), s.SetPosition(t.Context(), 7)); err != nil {
				t.Fatal(err)
			}
			execute(t, path, statement)
			_, readErr := s.Position(t.Context())
			hits, err := s.Search(t.Context(), index.Query{Agent: "main", Text: "tea", Vector: tea.Vector, Model: "m"})
			at, positionErr := s.Position(t.Context())
			if err := errors.Join(readErr, err, positionErr); err != nil || len(hits) != 0 || at != 0 {
				t.Errorf("hits %v, position %d, %v", hits, at, err)
			}
			if err := s.Put(t.Context(), []index.Entry{tea}); err != nil {
				t.Error(err)
			}
			if e, err := s.Get(t.Context(), tea.Key()); err != nil || e.Text != tea.Text {
				t.Errorf("got %+v, %v", e, err)
			}
			if aside, err := filepath.Glob(path + ".aside-*Z"); err != nil || len(aside) != 1 {
				t.Errorf("moved aside: %q, %v", aside, err)
			}
		})
	}
}

// What a search does not read any more is missed by the next change.
func TestDamageIsFoundByAChange(t *testing.T) {
	for _, table := range []string{"vectors_1", "words"} {
		path := newPath(t)
		s := open(t, path)
		if err := errors.Join(s.Put(t.Context(), []index.Entry{said, tea}), s.SetPosition(t.Context(), 7)); err != nil {
			t.Fatal(err)
		}
		execute(t, path, "DROP TABLE "+table)
		again := tea
		again.Revision++
		if err := s.Put(t.Context(), []index.Entry{again}); err != nil {
			t.Error(err)
		}
		if at, err := s.Position(t.Context()); err != nil || at != 0 {
			t.Errorf("without %s: position %d, %v", table, at, err)
		}
		q := index.Query{Agent: "main", Text: "tea", Vector: tea.Vector, Model: "m"}
		if hits, err := s.Search(t.Context(), q); err != nil || len(hits) != 1 || hits[0].ID != tea.ID {
			t.Errorf("without %s: found %+v, %v", table, hits, err)
		}
	}
}

// An agent with more memories than a process keeps is searched by SQLite, with the same result.
func TestManyMemories(t *testing.T) {
	s := open(t, newPath(t))
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same vectors in each run
	var entries []index.Entry
	search := func() (ids []string) {
		t.Helper()
		hits, err := s.Search(t.Context(), index.Query{Agent: "main", Vector: []float32{1, 0, 0}, Model: "m", Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hits {
			ids = append(ids, h.ID)
		}
		return ids
	}
	add := func(n int, from float32) {
		t.Helper()
		for range n {
			e := tea
			e.ID, e.Revision = fmt.Sprint("m", len(entries)), uint64(len(entries)+1)
			e.Vector = []float32{from + chance.Float32(), 1, chance.Float32()}
			entries = append(entries, e)
		}
		if err := s.Put(t.Context(), entries[len(entries)-n:]); err != nil {
			t.Fatal(err)
		}
	}
	add(100, 1)
	few := search()
	add(5000, -2) // all are further away
	if many := search(); !slices.Equal(few, many) {
		t.Errorf("found %q, and among many %q", few, many)
	}
}

// A search reads the vectors after it has chosen candidates. One that lost its vector in between,
// because somebody corrected the text, is no damage.
func TestACandidateMayLoseItsVector(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	if err := errors.Join(s.Put(t.Context(), []index.Entry{tea}), s.SetPosition(t.Context(), 7)); err != nil {
		t.Fatal(err)
	}
	execute(t, path, "UPDATE entry SET model = 0, vector = NULL")
	hits, err := s.Search(t.Context(), index.Query{Agent: "main", Text: "tea", Vector: tea.Vector, Model: "m"})
	at, positionErr := s.Position(t.Context())
	if err := errors.Join(err, positionErr); err != nil || at != 7 {
		t.Fatalf("position %d, %v", at, err)
	}
	if len(hits) != 1 || hits[0].Match != memory.Lexical || hits[0].Text != tea.Text {
		t.Errorf("hits %+v", hits)
	}
}

// A view and an index do not take each other's file.
func TestFilesOfOthersAreRefused(t *testing.T) {
	path := newPath(t)
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, "PRAGMA application_id = 1936417896")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if s != nil || !errors.Is(err, index.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
}

func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

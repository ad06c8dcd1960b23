package markdown_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// sizes of a text, in bytes: what doubles from the first to the second is linear, what
// becomes four times as much is not.
var sizes = []int{20_000, 40_000}

// Work is how often blocks of statements of the reader, the renderer and the policy run:
// a clock would measure the machine.
func TestPathologicalTextsAreLinear(t *testing.T) {
	dir, names := t.TempDir(), slices.Sorted(maps.Keys(pathological))
	place := func(i, j int) string { return filepath.Join(dir, fmt.Sprint(i*len(sizes)+j)) }
	for i, name := range names {
		for j, size := range sizes {
			write(t, filepath.Join(place(i, j), "text"), pathological[name](size))
		}
	}
	program := filepath.Join(dir, "work")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-o="+program,
		"-coverpkg=./testdata/work,skandha.dev/services/uibridge/markdown,github.com/yuin/goldmark/...,github.com/microcosm-cc/bluemonday,golang.org/x/net/html", "./testdata/work")
	run(t, program, dir)
	for i, name := range names {
		small, large := blocks(t, place(i, 0)), blocks(t, place(i, 1))
		perByte, times := large/sizes[1], float64(large)/float64(small)
		t.Logf("%-30s %5d blocks per byte, %.2f times as many for twice as much", name, perByte, times)
		if times > 2.6 || perByte > 600 {
			t.Errorf("%s: %d bytes take %d blocks of statements, %d bytes %d", name, sizes[0], small, sizes[1], large)
		}
		page, err := os.Stat(filepath.Join(place(i, 1), "page"))
		if err != nil {
			t.Fatal(err)
		}
		if page.Size() > int64(40*sizes[1]) {
			t.Errorf("%s: %d bytes became %d", name, sizes[1], page.Size())
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir()) // what is counted at its end is of no interest
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// blocks is how many blocks of statements ran for a text.
func blocks(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n == 0 {
		t.Fatalf("the count is %q, %v", b, err)
	}
	return n
}

package filesystem

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A hard link has no way out that a path would show, and a mount neither.
func TestWhatIsProtectedIsRefusedUnderAnyName(t *testing.T) {
	f := newFixture(t)
	f.put("own", "mine")
	f.put("link", "")
	if err := os.Remove(filepath.Join(f.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(f.outer, "secret"), filepath.Join(f.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("link", filepath.Join(f.dir, "to-link")); err != nil {
		t.Fatal(err)
	}
	names := []string{"link", "to-link", "./link"}
	for _, dir := range []string{filepath.Join(f.outer, "data"), filepath.Join(f.dir, "mnt")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.outer, "data", "ui-token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.outer, "data", "nats", "streams"), 0o700); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(f.outer, "data", "nats", "streams", "meta")
	if err := errors.Join(os.WriteFile(deep, []byte("{}"), 0o600),
		os.Link(deep, filepath.Join(f.dir, "deep"))); err != nil {
		t.Fatal(err)
	}
	names = append(names, "deep")
	f.put("twin", "ours")
	if err := os.Link(filepath.Join(f.dir, "twin"), filepath.Join(f.dir, "other")); err != nil {
		t.Fatal(err)
	}
	if c := f.read(map[string]any{"path": "other"}); c.Content != "ours" {
		t.Errorf("a hard link of one's own: %+v", c)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "--bind", filepath.Join(f.outer, "data"),
		filepath.Join(f.dir, "mnt")).CombinedOutput(); err != nil {
		t.Logf("without a mount: %v: %s", err, out)
	} else {
		names = append(names, "mnt/ui-token", "mnt/new", "mnt")
		t.Cleanup(func() {
			if out, err := exec.Command("umount", "-l", filepath.Join(f.dir, "mnt")).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	for _, name := range names {
		for tl, args := range map[string]map[string]any{
			"read_file": {"path": name}, "write_file": {"path": name, "content": "x", "mode": "overwrite"},
			"append_file": {"path": name, "content": "x"}, "delete_file": {"path": name}, "list": {"path": name},
		} {
			if r := f.call(tl, args); r.Success || !strings.Contains(r.Error.Message, "belongs to the system") {
				t.Errorf("%s %s: %+v", tl, name, r)
			}
		}
	}
	if r := f.call("read_file", map[string]any{"path": "own"}); !r.Success {
		t.Errorf("an unprotected file: %+v", r)
	}
}

func TestTemporaryNamesAreNotWritten(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{".skandha-x.tmp", "a/.skandha-x.tmp", ".skandha-x.tmp/a"} {
		for tl, args := range map[string]map[string]any{
			"write_file": {"path": name, "content": "x"}, "append_file": {"path": name, "content": "x"},
		} {
			if r := f.call(tl, args); r.Success ||
				!strings.Contains(r.Error.Message, "are reserved for files that are being written") {
				t.Errorf("%s %s: %+v", tl, name, r)
			}
		}
	}
	f.put(".skandha-old.tmp", "left by a crash")
	if r := f.call("delete_file", map[string]any{"path": ".skandha-old.tmp"}); !r.Success {
		t.Errorf("deleting one that was left: %+v", r)
	}
}

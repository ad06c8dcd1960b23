package filesystem

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/tools"
)

// fixture is a workspace with a secret beside it.
type fixture struct {
	t     *testing.T
	outer string // holds the secret and the workspace
	dir   string // the workspace
	tools map[string]tools.Tool
	shelf shelf
	after []string // which texts from outside the calls follow
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, outer: t.TempDir(), tools: map[string]tools.Tool{}}
	f.dir = filepath.Join(f.outer, "workspace")
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.outer, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	for _, tl := range Tools(root, Limits{KeepFree: -1}, filepath.Join(f.outer, "secret"),
		filepath.Join(f.outer, "data")) {
		f.tools[strings.TrimPrefix(tl.Spec.Name, "file_system:")] = tl
	}
	return f
}

// call calls a tool as the runner does, with its arguments validated.
func (f *fixture) call(name string, args map[string]any) tool.Result {
	f.t.Helper()
	tl := f.tools[name]
	v, err := toolschema.Compile(tl.Spec)
	if err != nil {
		f.t.Fatal(err)
	}
	raw, _ := json.Marshal(args)
	norm, errs := v.Validate(raw)
	if errs != nil {
		return tool.Failure(tool.CodeInvalidArgs, strings.Join(errs, "; "))
	}
	return tl.Run(f.t.Context(), tools.Call{
		Agent: "a", Session: "s", ID: "c", Attempt: "n", Args: norm, Store: &f.shelf, After: f.after,
	})
}

func (f *fixture) put(name, content string) {
	f.t.Helper()
	p := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(content), 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) get(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

func (f *fixture) read(args map[string]any) Content {
	f.t.Helper()
	r := f.call("read_file", args)
	if !r.Success {
		f.t.Fatalf("reading %v: %v", args, r.Error)
	}
	var c Content
	if err := json.Unmarshal(r.Data, &c); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func TestReadFile(t *testing.T) {
	f := newFixture(t)
	f.put("a/b.txt", "hello world")
	if c := f.read(map[string]any{"path": "a/b.txt"}); c != (Content{Path: "a/b.txt", Size: 11, Content: "hello world"}) {
		t.Fatalf("got %+v", c)
	}
	if c := f.read(map[string]any{"path": "a/../a/./b.txt", "offset": 6, "limit": 3}); c.Content != "wor" ||
		c.NextOffset != 9 {
		t.Fatalf("got %+v", c)
	}
	if c := f.read(map[string]any{"path": "a/b.txt", "offset": 11}); c.Content != "" || c.NextOffset != 0 {
		t.Fatalf("got %+v", c)
	}
	f.put("empty", "")
	if c := f.read(map[string]any{"path": "empty"}); c.Content != "" {
		t.Fatalf("got %+v", c)
	}
}

func TestReadingOnGivesAllOfTheFile(t *testing.T) {
	f := newFixture(t)
	text := strings.Repeat("aé€😀", 100)
	f.put("text", text)
	for limit := 1; limit <= 12; limit++ {
		var got strings.Builder
		for offset := int64(0); ; {
			c := f.read(map[string]any{"path": "text", "offset": offset, "limit": limit})
			got.WriteString(c.Content)
			if offset = c.NextOffset; offset == 0 {
				break
			}
		}
		if got.String() != text {
			t.Fatalf("limit %d: the parts do not make the whole", limit)
		}
	}
	if c := f.read(map[string]any{"path": "text", "offset": 2, "limit": 4}); c.Content != "€" || c.Offset != 3 {
		t.Fatalf("from the middle of a character: %+v", c)
	}
}

func TestBinaryFilesAreNotRead(t *testing.T) {
	f := newFixture(t)
	for name, data := range map[string]string{
		"bmp": "BM\x00\x00\xff", "latin1": "caf\xe9 au lait", "nul": "a\x00b",
	} {
		f.put(name, data)
		if r := f.call("read_file", map[string]any{"path": name}); r.Success ||
			!strings.Contains(r.Error.Message, "binary file") {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// everyTool calls each tool on a path and wants each to refuse it with a message.
func (f *fixture) everyTool(name, want string) {
	f.t.Helper()
	for tl, args := range map[string]map[string]any{
		"read_file":   {"path": name},
		"list":        {"path": name},
		"write_file":  {"path": name, "content": "x", "mode": "overwrite"},
		"append_file": {"path": name, "content": "x"},
	} {
		r := f.call(tl, args)
		if r.Success || !strings.Contains(r.Error.Message, want) {
			f.t.Errorf("%s %q: got %s %v, want an error with %q", tl, name, r.Data, r.Error, want)
		} else if !strings.Contains(name, f.outer) && strings.Contains(r.Error.Message, f.outer) {
			f.t.Errorf("%s %q: the error tells the machine's paths: %v", tl, name, r.Error)
		}
	}
	if b, err := os.ReadFile(filepath.Join(f.outer, "secret")); err != nil || string(b) != "secret" {
		f.t.Fatalf("the secret was changed: %q %v", b, err)
	}
}

func TestNoPathLeadsOut(t *testing.T) {
	f := newFixture(t)
	f.put("dir/file", "x")
	for link, target := range map[string]string{
		"absolute": f.outer, "relative": "..", "dir/up": "../..", "file": "../secret", "dangling": "../not-there/x",
		"loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f.everyTool("../secret", "outside the workspace")
	f.everyTool("dir/../../secret", "outside the workspace")
	f.everyTool("..", "outside the workspace")
	f.everyTool("/etc/passwd", "is absolute")
	f.everyTool(filepath.Join(f.outer, "secret"), "is absolute")
	f.everyTool("a\x00b", "NUL byte")
	f.everyTool(strings.Repeat("a/", 3000), "at most 4096")
	f.everyTool("absolute/secret", "")
	f.everyTool("relative/secret", "outside the workspace")
	f.everyTool("dir/up/secret", "outside the workspace")
	f.everyTool("file", "")
	f.everyTool("dangling", "")
	f.everyTool("loop", "")
	if _, err := os.Stat(filepath.Join(f.outer, "not-there")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("something was made outside the workspace")
	}
}

// Policy judges a call by the path that it names, so a link must not replace another path.
func TestAPathIsTheFilesOwn(t *testing.T) {
	f := newFixture(t)
	f.put("keep/dir/file", "x")
	for link, to := range map[string]string{"pub": "keep", "note": "keep/dir/file", "keep/up": ".."} {
		if err := os.Symlink(to, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, own := range map[string]string{
		"pub/dir/file": "keep/dir/file", "./pub//dir/file": "keep/dir/file", "pub/new": "keep/new", "note": "keep/dir/file",
		"keep/up/pub/dir/file": "pub/dir/file", "pub/up/keep/dir/file": "keep/up/keep/dir/file",
	} {
		want := fmt.Sprintf("is a symbolic link: use the path that it leads to, %q", own)
		for tl, args := range map[string]map[string]any{
			"read_file": {"path": path}, "write_file": {"path": path, "content": "y", "mode": "overwrite"},
			"append_file": {"path": path, "content": "y"}, "delete_file": {"path": path}, "list": {"path": path},
		} {
			if tl == "delete_file" && path == "note" {
				continue // deletes the link
			}
			if r := f.call(tl, args); r.Success || !strings.Contains(r.Error.Message, want) {
				t.Errorf("%s %s: got %s, %v, want %q", tl, path, r.Data, r.Error, want)
			}
		}
	}
	if c := f.read(map[string]any{"path": "keep/dir/file"}); c.Content != "x" {
		t.Errorf("got %+v", c)
	}
	if r := f.call("delete_file", map[string]any{"path": "note"}); !r.Success {
		t.Errorf("a link: %+v", r.Error)
	}
	if c := f.read(map[string]any{"path": "keep/dir/file"}); c.Content != "x" {
		t.Errorf("after deleting the link: %+v", c)
	}
}

func TestADirectorySwappedForALinkLeadsNowhere(t *testing.T) {
	f := newFixture(t)
	inside, aside := filepath.Join(f.dir, "d"), filepath.Join(f.dir, "aside")
	f.put("d/secret", "harmless")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(inside, aside)
			_ = os.Symlink(f.outer, inside)
			_ = os.Remove(inside)
			_ = os.Rename(aside, inside)
		}
	})
	for range 300 {
		if r := f.call("read_file", map[string]any{"path": "d/secret"}); strings.Contains(string(r.Data), `"secret"`) &&
			!strings.Contains(string(r.Data), "d/secret") {
			t.Errorf("read the secret: %s", r.Data)
		} else if r.Success && !strings.Contains(string(r.Data), "harmless") {
			t.Errorf("read something else: %s", r.Data)
		}
		f.call("append_file", map[string]any{"path": "d/stray", "content": "x"})
	}
	close(stop)
	wg.Wait()
	if _, err := os.Stat(filepath.Join(f.outer, "stray")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("wrote outside the workspace")
	}
}

func TestWhatIsNoRegularFileIsRefusedWithoutWaiting(t *testing.T) {
	f := newFixture(t)
	if err := syscall.Mkfifo(filepath.Join(f.dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put("dir/x", "")
	for tl, args := range map[string]map[string]any{
		"read_file": {}, "write_file": {"content": "x", "mode": "overwrite"}, "append_file": {"content": "x"},
		"delete_file": {},
	} {
		for name, want := range map[string]string{
			"fifo": "not a regular file", "dir": "is a directory", ".": "is a directory",
		} {
			args["path"] = name
			if r := f.call(tl, args); r.Success || !strings.Contains(r.Error.Message, want) {
				t.Errorf("%s %s: got %+v", tl, name, r)
			}
		}
	}
	f.put("file", "")
	for _, name := range []string{"fifo", "file"} {
		if r := f.call("list", map[string]any{"path": name}); r.Success ||
			!strings.Contains(r.Error.Message, "not a directory") {
			t.Errorf("list %s: got %+v", name, r)
		}
	}
	t.Run("device", func(t *testing.T) {
		const zero = 1<<8 | 5
		if err := syscall.Mknod(filepath.Join(f.dir, "zero"), syscall.S_IFCHR|0o600, zero); err != nil {
			if os.Getenv("SKANDHA_REQUIRE") == "all" && os.Geteuid() == 0 {
				t.Fatal(err)
			}
			t.Skipf("SKIPPED: no right to make a device: %v", err)
		}
		if r := f.call("read_file", map[string]any{"path": "zero"}); r.Success ||
			!strings.Contains(r.Error.Message, "not a regular file") {
			t.Errorf("got %+v", r)
		}
	})
}

func TestWriteFile(t *testing.T) {
	f := newFixture(t)
	write := func(content, mode string) tool.Result {
		return f.call("write_file", map[string]any{"path": "new/dir/file", "content": content, "mode": mode})
	}
	for _, step := range []struct {
		content, mode string
		ok            bool
		want          string
	}{
		{"one", "create", true, "one"},
		{"one", "create", true, "one"}, // again: as it was asked for
		{"two", "create", false, "one"},
		{"two", "overwrite", true, "two"},
		{"two", "overwrite", true, "two"},
		{"", "overwrite", true, ""},
	} {
		if r := write(step.content, step.mode); r.Success != step.ok {
			t.Fatalf("%+v: got %+v", step, r)
		}
		if got := f.get("new/dir/file"); got != step.want {
			t.Fatalf("%+v: the file holds %q", step, got)
		}
	}
	left, err := os.ReadDir(filepath.Join(f.dir, "new/dir"))
	if err != nil || len(left) != 1 {
		t.Fatalf("temporary files were left behind: %v %v", left, err)
	}
}

func TestOverwritingKeepsTheMode(t *testing.T) {
	f := newFixture(t)
	f.put("script", "old")
	if err := os.Chmod(filepath.Join(f.dir, "script"), 0o750); err != nil {
		t.Fatal(err)
	}
	f.call("write_file", map[string]any{"path": "script", "content": "new", "mode": "overwrite"})
	if info, err := os.Stat(filepath.Join(f.dir, "script")); err != nil || info.Mode().Perm() != 0o750 ||
		f.get("script") != "new" {
		t.Fatalf("got %v %v", info, err)
	}
}

func TestAReaderSeesOneWholeVersion(t *testing.T) {
	f := newFixture(t)
	versions := []string{strings.Repeat("a", 10_000), strings.Repeat("b", 5_000)}
	f.put("file", versions[0])
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			f.call("write_file", map[string]any{"path": "file", "content": versions[i%2], "mode": "overwrite"})
		}
	})
	for range 300 {
		if c := f.read(map[string]any{"path": "file"}); c.Content != versions[0] && c.Content != versions[1] {
			t.Errorf("got a mixture of %d bytes", len(c.Content))
		}
	}
	wg.Wait()
}

func TestAppendFile(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if r := f.call("append_file", map[string]any{"path": "log/file", "content": "line\n"}); !r.Success {
				t.Errorf("got %v", r.Error)
			}
		})
	}
	wg.Wait()
	if got := f.get("log/file"); got != strings.Repeat("line\n", 20) {
		t.Fatalf("got %q", got)
	}
	if err := os.Truncate(filepath.Join(f.dir, "log/file"), MaxFile); err != nil {
		t.Fatal(err)
	}
	if r := f.call("append_file", map[string]any{"path": "log/file", "content": "x"}); r.Success ||
		!strings.Contains(r.Error.Message, "at most") {
		t.Fatalf("got %+v", r)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t)
	f.put("b/c/d", "1234")
	f.put("a", "1")
	f.put(".skandha-X.tmp", "half")
	if err := os.Symlink("b", filepath.Join(f.dir, "link")); err != nil {
		t.Fatal(err)
	}
	names := func(args map[string]any) string {
		r := f.call("list", args)
		var l listing
		if err := json.Unmarshal(r.Data, &l); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		var out []string
		for _, e := range l.Entries {
			if e.Modified == "" || (e.Type == "file") != (e.Size > 0) {
				t.Errorf("got %+v", e)
			}
			out = append(out, e.Path+":"+e.Type)
		}
		return strings.Join(out, " ")
	}
	if got := names(nil); got != ".skandha-X.tmp:file a:file b:directory link:symlink" {
		t.Errorf("got %s", got)
	}
	if got := names(map[string]any{
		"recursive": true,
	}); got != ".skandha-X.tmp:file a:file b:directory b/c:directory b/c/d:file link:symlink" {
		t.Errorf("got %s", got)
	}
	if got := names(map[string]any{"path": "b/c"}); got != "b/c/d:file" {
		t.Errorf("got %s", got)
	}
}

func TestAListingIsBounded(t *testing.T) {
	f := newFixture(t)
	for i := range maxEntries + 5 {
		f.put("many/"+strings.Repeat("x", i%50+1)+string(rune('0'+i/50)), "")
	}
	r := f.call("list", map[string]any{"path": "many"})
	var l listing
	if err := json.Unmarshal(r.Data, &l); err != nil || len(l.Entries) != maxEntries || !l.Truncated {
		t.Fatalf("got %d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
}

func TestDeleteFile(t *testing.T) {
	f := newFixture(t)
	f.put("dir/file", "hello")
	if r := f.call("delete_file", map[string]any{"path": "dir/file"}); !r.Success ||
		!strings.Contains(string(r.Data), `"size":5`) {
		t.Fatalf("got %s, %+v", r.Data, r.Error)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "dir/file")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it is still there (%v)", err)
	}
	if r := f.call("delete_file", map[string]any{"path": "dir/file"}); r.Success {
		t.Error("a file that is not there was deleted")
	}

	secret := filepath.Join(f.outer, "secret")
	for link, to := range map[string]string{"link": secret, "away": f.outer} {
		if err := os.Symlink(to, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"../secret", secret, "away/secret", "dir/../../secret"} {
		if r := f.call("delete_file", map[string]any{"path": path}); r.Success {
			t.Errorf("%s: deleted outside the workspace", path)
		}
	}
	if r := f.call("delete_file", map[string]any{"path": "link"}); !r.Success {
		t.Errorf("a link: %+v", r.Error)
	}
	if b, err := os.ReadFile(secret); string(b) != "secret" {
		t.Fatalf("the secret is %q (%v)", b, err)
	}
}

func TestTheSpecsAreHonest(t *testing.T) {
	f := newFixture(t)
	for name, want := range map[string]bool{
		"read_file": true, "list": true, "write_file": true, "append_file": false, "delete_file": false,
	} {
		if s := f.tools[name].Spec; s.Idempotent != want || s.Description == "" || len(s.Permissions) == 0 {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}

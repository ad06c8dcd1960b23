//go:build linux

package bwrap

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// wheel creates a wheel with one module.
func wheel(t *testing.T, name, source string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	info := name + "-1.0.dist-info/"
	for _, f := range [][2]string{
		{name + "/__init__.py", source},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + "/__init__.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// index serves wheels as a package index does, on loopback.
func index(t *testing.T, wheels map[string][]byte) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	for name, content := range wheels {
		file := name + "-1.0-py3-none-any.whl"
		mux.HandleFunc("/simple/"+name+"/", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `<a href="/files/%s#sha256=%x">%s</a>`, file, sha256.Sum256(content), file)
		})
		mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + "/simple"
}

func order(url, name string) driver.Install {
	id := sha256.Sum256([]byte(url + name))
	return driver.Install{
		ID: hex.EncodeToString(id[:]), MaxBytes: 1 << 20,
		Args: []string{
			"-I", "-m", "pip", "install", "--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir",
			"--retries", "0",
			"--only-binary", ":all:", "--target", driver.Packages, "--index-url", url, "--", name,
		},
	}
}

// script is an installation by our own program, for cases that pip does not produce.
func script(code string) driver.Install {
	id := sha256.Sum256([]byte(code))
	return driver.Install{
		ID: hex.EncodeToString(id[:]), MaxBytes: 1 << 20, Args: []string{"-I", "-S", "-c", prelude + code},
	}
}

func installer(t *testing.T) *Driver {
	t.Helper()
	d := newDriver(t, Config{})
	if !d.host.python.pip {
		missing(t, noPip)
	}
	return d
}

func TestInstallAndUse(t *testing.T) {
	d := installer(t)
	in := order(index(t, map[string][]byte{"hello": wheel(t, "hello", "answer = 42\n")}), "hello")
	var printed []string
	in.Output = func(line string) { printed = append(printed, line) }
	if err := d.Install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(printed, "\n"), "Successfully installed hello-1.0") {
		t.Errorf("it printed %q", printed)
	}
	n := len(printed)
	if err := d.Install(t.Context(), in); err != nil || len(printed) != n {
		t.Errorf("a second time: %v", err)
	}
	use := func(s *driver.Spec) { s.Set = in.ID }
	b := begin(t, d, `
sys.path.append("/packages")
import hello
say([hello.answer, fails(open, "/packages/x", "w"), fails(open, hello.__file__, "a") in ("EROFS", "EACCES")])
go()`, use)
	var got []any
	if hear(t, b, &got); fmt.Sprint(got) != "[42 EROFS true]" {
		t.Errorf("%v", got)
	}
	sets, err := d.Sets(t.Context())
	if err != nil || len(sets) != 1 || sets[0].ID != in.ID || sets[0].Bytes < 100 || time.Since(sets[0].Used) > time.Hour {
		t.Errorf("%+v, %v", sets, err)
	}
	other := newDriver(t, Config{Dir: d.cfg.Dir}) // another service
	for _, x := range []*Driver{d, other} {
		if err := x.RemoveSet(t.Context(), in.ID); !errors.Is(err, driver.ErrInUse) {
			t.Errorf("while it is used: %v", err)
		}
	}
	destroy(t, b)
	if err := other.RemoveSet(t.Context(), in.ID); err != nil {
		t.Error(err)
	}
	if err := d.RemoveSet(t.Context(), in.ID); !errors.Is(err, driver.ErrNoSet) {
		t.Errorf("again: %v", err)
	}
	if left, _ := os.ReadDir(d.sets.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A failed installation leaves nothing.
func TestInstallFails(t *testing.T) {
	d := installer(t)
	for name, c := range map[string]struct {
		in   driver.Install
		want string
	}{
		"no such package": {order(index(t, nil), "absent"), "No matching distribution"},
		"too large": {
			script(`open("/packages/x", "wb").write(b"x" * (1 << 20)); open("/packages/y", "wb").write(b"x" * (1 << 20))`),
			"larger than 1048576 bytes",
		},
		"far too large": {script(`
for i in range(100): open("/packages/%d" % i, "wb").write(b"x" * (1 << 19))
time.sleep(1000)`), "larger than 1048576 bytes"},
		"a large file":  {script(`say(fails(open("/tmp/x", "wb").truncate, 1 << 30)); sys.exit(1)`), "EFBIG"},
		"its own error": {script(`print("no", file=sys.stderr); sys.exit(1)`), "no"},
	} {
		t.Run(name, func(t *testing.T) {
			err := d.Install(t.Context(), c.in)
			var refusal *driver.InstallError
			if !errors.As(err, &refusal) || !strings.Contains(strings.Join(refusal.Output, "\n"), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if left, _ := os.ReadDir(d.sets.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestInstallIsCancelled(t *testing.T) {
	d := installer(t)
	ctx, cancel := context.WithCancel(t.Context())
	in := script(`print("begun", flush=True); time.sleep(1000)`)
	in.Output = func(string) { cancel() }
	if err := d.Install(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(d.sets.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Close ends installations, which have removed their incomplete sets when it returns.
func TestCloseEndsInstallations(t *testing.T) {
	dir := openDir(t)
	d := newDriver(t, Config{Dir: dir})
	if !d.host.python.pip {
		missing(t, noPip)
	}
	begun, ended := make(chan string, 1), make(chan error, 1)
	in := script(`
os.chdir("/packages")
for i in range(3000): open("%d" % i, "w").close()
print("begun", flush=True); time.sleep(1000)`)
	in.Output = func(line string) { begun <- line }
	go func() { ended <- d.Install(t.Context(), in) }()
	<-begun
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, sub := range []string{"sets", "leases"} {
		if left, _ := os.ReadDir(filepath.Join(dir, sub)); len(left) > 0 {
			t.Errorf("%s: left: %v", sub, left)
		}
	}
	if err := <-ended; err == nil {
		t.Error("the installation succeeded")
	}
	if err := d.Install(t.Context(), in); !errors.Is(err, errClosed) {
		t.Errorf("a closed driver installs: %v", err)
	}
}

// What a closed service leaves is reaped too.
func TestWhatCloseLeavesIsReaped(t *testing.T) {
	dir := openDir(t)
	d := newDriver(t, Config{Dir: dir})
	half := d.sets.path(".new-" + d.lease.instance + "-1")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := newDriver(t, Config{Dir: dir}).Reap(t.Context()); n != 1 || err != nil || exists(half) {
		t.Errorf("%d things were reaped, %v; the half set is there: %t", n, err, exists(half))
	}
}

// An installer's files are readable for all and writable for none.
func TestSetIsSealed(t *testing.T) {
	d := installer(t)
	in := script(`
open("/packages/private", "w").write("x"); os.chmod("/packages/private", 0o4700)
os.mkdir("/packages/d"); open("/packages/d/x", "w").write("x"); os.chmod("/packages/d/x", 0o600); os.chmod("/packages/d", 0o700)`)
	if err := d.Install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{"private": 0o755, "d": 0o755 | os.ModeDir, "d/x": 0o644} {
		info, err := os.Lstat(filepath.Join(d.sets.path(in.ID), file))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", file, info.Mode(), err, want)
		}
	}
	b := begin(t, d, `say(open("/packages/d/x").read())`, func(s *driver.Spec) { s.Set = in.ID })
	var got string
	if hear(t, b, &got); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestInstallOfWhatIsNoFile(t *testing.T) {
	d := installer(t)
	if err := d.Install(t.Context(), script(`os.mkfifo("/packages/fifo")`)); err == nil ||
		!strings.Contains(err.Error(), "fifo") {
		t.Errorf("%v", err)
	}
}

// Two services may install the same set; one of them wins.
func TestInstallTwiceAtOnce(t *testing.T) {
	d := installer(t)
	other := newDriver(t, Config{Dir: d.cfg.Dir})
	in := script(`open("/packages/x", "w").write("x")`)
	errs := make(chan error)
	for _, x := range []*Driver{d, other, d, other} {
		go func() { errs <- x.Install(context.Background(), in) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if sets, err := d.Sets(t.Context()); len(sets) != 1 || err != nil {
		t.Errorf("%v, %v", sets, err)
	}
	if left, _ := os.ReadDir(d.sets.dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

func TestHalfASetIsReaped(t *testing.T) {
	d := newDriver(t, Config{})
	half, mine := d.sets.path(".new-dead-1"), d.sets.path(".new-"+d.lease.instance+"-1")
	for _, dir := range []string{half + "/set", mine, d.sets.path(".new-unknown-1")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.cfg.Dir, "leases", "dead"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Reap(t.Context()); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if exists(half) || !exists(mine) || !exists(d.sets.path(".new-unknown-1")) {
		t.Error("what was not dead's is gone, or dead's is there")
	}
}

func TestInstallRefuses(t *testing.T) {
	d := newDriver(t, Config{})
	good := script(`1`)
	for want, change := range map[string]func(*driver.Install){
		"id":        func(in *driver.Install) { in.ID = "../x" },
		"args":      func(in *driver.Install) { in.Args = nil },
		"max_bytes": func(in *driver.Install) { in.MaxBytes = 0 },
	} {
		in := good
		change(&in)
		if err := d.Install(t.Context(), in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

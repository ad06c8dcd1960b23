package docker

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// index serves one wheel, called greeting, in the engine's network, and returns
// what pip must print.
func (r *rig) index(t *testing.T) []string {
	t.Helper()
	gateway := r.engine.Docker(t, "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}")
	if gateway == "" { // older engines name it once a container has been there
		gateway = "172.17.0.1"
	}
	const file = "greeting-1.0-py3-none-any.whl"
	whole := wheel(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /simple/greeting/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<a href="/%s#sha256=%x">%s</a>`, file, sha256.Sum256(whole), file)
	})
	mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(whole) })
	l := r.engine.Listen(t, "0.0.0.0:0")
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // until l is closed
	t.Cleanup(func() { _ = server.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"-m", "pip", "install", "--target", driver.Packages, "--only-binary", ":all:", "--no-cache-dir",
		"--disable-pip-version-check",
		"--index-url", "http://" + gateway + ":" + port + "/simple", "--trusted-host", gateway,
	}
}

// wheel returns a wheel with a single module.
func wheel(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range [][2]string{
		{"greeting.py", "text = 'hello'\n"},
		{"greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"},
		{"greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{
			"greeting-1.0.dist-info/RECORD",
			"greeting.py,,\ngreeting-1.0.dist-info/METADATA,,\ngreeting-1.0.dist-info/WHEEL,,\ngreeting-1.0.dist-info/RECORD,,\n",
		},
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

func newID() string {
	sum := sha256.Sum256([]byte(rand.Text()))
	return hex.EncodeToString(sum[:])
}

const usesGreeting = "import sys; sys.path.insert(0, '/packages'); import greeting; print(greeting.text)"

func TestInstalledSetIsThereForSandboxes(t *testing.T) {
	r := newRig(t)
	args := append(r.index(t), "greeting")
	id := newID()
	var lines []string
	in := driver.Install{ID: id, Args: args, MaxBytes: 1 << 20, Output: func(line string) { lines = append(lines, line) }}
	for range 2 { // a second time does nothing
		if err := r.Install(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(strings.Join(lines, "\n"), "Successfully installed greeting-1.0"); n != 1 {
		t.Errorf("pip succeeded %d times, want once:\n%s", n, strings.Join(lines, "\n"))
	}
	sets, err := r.Sets(t.Context())
	if err != nil || len(sets) != 1 || sets[0].ID != id || sets[0].Bytes <= 0 || sets[0].Bytes > 1<<20 ||
		sets[0].Used.IsZero() {
		t.Errorf("the sets are %+v, %v", sets, err)
	}
	made := sets[0].Used

	b := r.start(t, runner, small, id)
	for code, want := range map[string]string{
		usesGreeting: "hello",
		"import os; print(os.path.exists('/packages/.tmp'))":                              "False",
		"print([l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l])":     "['lo']",
		"try:\n  open('/packages/f', 'w')\nexcept OSError as e: print(e.strerror)":        "Read-only file system",
		"import os\ntry:\n  os.remove('/packages/greeting.py')\nexcept OSError: print(1)": "1",
	} {
		if out, ok := b.do(t, code); !ok || out != want {
			t.Errorf("%s: the sandbox says %q, %t, want %q", code, out, ok, want)
		}
	}
	if sets, err := r.Sets(t.Context()); err != nil || !sets[0].Used.After(made) {
		t.Errorf("a set that was used is %+v, %v", sets, err)
	}
	if err := r.RemoveSet(t.Context(), id); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("removing it while a sandbox uses it: %v, want %v", err, driver.ErrInUse)
	}
	if n, err := r.Reap(t.Context()); n != 0 || err != nil {
		t.Errorf("Reap removed %d, %v", n, err)
	}
	if out, _ := b.do(t, usesGreeting); out != "hello" {
		t.Errorf("after that, the sandbox says %q", out)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.RemoveSet(t.Context(), id); err != nil {
		t.Errorf("removing it: %v", err)
	}
	if err := r.RemoveSet(t.Context(), id); !errors.Is(err, driver.ErrNoSet) {
		t.Errorf("removing it again: %v, want %v", err, driver.ErrNoSet)
	}
	if left := r.volumes(t); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// The network of the host, for an index on its loopback.
func TestInstallWithTheHostsNetwork(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Network = "host" })
	if r.engine.PID == 0 {
		enginetest.Missing(t, "the engine is not ours, so its host's loopback may not be ours")
	}
	args := append(r.index(t), "greeting")
	for i, a := range args {
		if strings.HasPrefix(a, "http://") {
			host, _, _ := strings.Cut(strings.TrimPrefix(a, "http://"), ":")
			args[i] = strings.Replace(a, host, "127.0.0.1", 1)
		}
	}
	if err := r.Install(t.Context(),
		driver.Install{ID: newID(), Args: args, MaxBytes: 1 << 20}); err != nil {
		t.Error(err)
	}
}

// A set exists completely or not at all.
func TestInstallThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t)
	index := r.index(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refused *driver.InstallError
	for _, c := range []struct {
		about string
		ctx   context.Context //nolint:containedctx // of the call
		args  []string
		check func(error) bool
	}{
		{"pip refuses", t.Context(), append(index, "nonesuch"), func(err error) bool {
			return errors.As(err, &refused) && strings.Contains(err.Error(), "nonesuch")
		}},
		{"it is too large", t.Context(), []string{
			"-c", "open('/packages/f', 'wb').write(b'x' * (2 << 20))",
		}, func(err error) bool {
			return errors.As(err, &refused) && strings.Contains(err.Error(), "larger than 1 MiB")
		}},
		{"it grows without end", t.Context(), []string{
			"-c", "import os, itertools\nfor i in itertools.count(): open('/packages/f%d' % i, 'wb').write(b'x' * 100000)",
		}, func(err error) bool { // an engine whose volumes are in memory counts them as the sandbox's
			return errors.As(err, &refused) && strings.Contains(err.Error(), "larger than 1 MiB") || errors.Is(err, driver.ErrMemory)
		}},
		{
			"it prints without end and is ended", ctx,
			[]string{"-c", "while True: print('x' * 1000000)"},
			func(err error) bool { return errors.Is(err, context.Canceled) },
		},
		{
			"it uses too much memory", t.Context(),
			[]string{"-c", "x = bytearray(2 << 30)"},
			func(err error) bool { return err != nil },
		},
		{"it has no bound", t.Context(), nil, func(err error) bool { return strings.Contains(err.Error(), "max_bytes") }},
	} {
		t.Run(c.about, func(t *testing.T) {
			in := driver.Install{ID: newID(), Args: c.args, MaxBytes: 1 << 20, Output: func(line string) {
				if len(line) > 4096 {
					t.Errorf("a line has %d bytes", len(line))
				}
				if c.ctx == ctx {
					cancel()
				}
			}}
			if c.args == nil {
				in.MaxBytes = 0
			}
			if err := r.Install(c.ctx, in); !c.check(err) {
				t.Errorf("it ended with %v", err)
			}
			if left := r.volumes(t); len(left) > 0 {
				t.Errorf("volumes are there: %v", left)
			}
			if _, err := r.Start(t.Context(), driver.Spec{Name: "a", Set: in.ID}); !errors.Is(err, driver.ErrNoSet) {
				t.Errorf("a sandbox with the set: %v, want %v", err, driver.ErrNoSet)
			}
		})
	}
	r.awaitLeft(t, 1)
}

// Of two services that install one set concurrently one wins, and both have it.
func TestSetIsMadeTwiceAtOnce(t *testing.T) {
	a := newRig(t)
	b := newRig(t, func(c *Config) { c.Owner = a.cfg.Owner })
	id := newID()
	in := driver.Install{
		ID: id, MaxBytes: 1 << 20, Args: []string{"-c", "open('/packages/greeting.py', 'w').write('text = 1')"},
	}
	var both sync.WaitGroup
	for _, r := range []*rig{a, b, a, b} {
		both.Go(func() {
			if err := r.Install(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if left := a.volumes(t); len(left) != 2 {
		t.Errorf("there are %v, want a set and its packages", left)
	}
	for _, r := range []*rig{a, b} {
		if n, err := r.Reap(t.Context()); n != 0 || err != nil {
			t.Errorf("Reap removed %d, %v", n, err)
		}
		if out, _ := r.start(t, runner, small, id).do(t, usesGreeting); out != "1" {
			t.Errorf("a sandbox says %q", out)
		}
	}
}

// A removal that was interrupted between the packages and the set is finished by Reap, or
// by installing the set again.
func TestSetWithoutPackagesIsNone(t *testing.T) {
	r := newRig(t)
	in := driver.Install{
		ID: newID(), MaxBytes: 1 << 20, Args: []string{"-c", "open('/packages/greeting.py', 'w').write('text = 1')"},
	}
	cut := func() {
		t.Helper()
		if err := r.Install(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		data, err := r.dataOf(t.Context(), in.ID)
		if err != nil {
			t.Fatal(err)
		}
		r.engine.Docker(t, "volume", "rm", data)
	}
	cut()
	if sets, err := r.Sets(t.Context()); err != nil || len(sets) > 0 {
		t.Errorf("the sets are %v, %v", sets, err)
	}
	if _, err := r.Start(t.Context(), driver.Spec{Name: "a", Set: in.ID}); !errors.Is(err, driver.ErrNoSet) {
		t.Errorf("a sandbox with it: %v, want %v", err, driver.ErrNoSet)
	}
	r.reaps(t, 2) // and the volume that the engine made for that sandbox
	if left := r.volumes(t); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
	cut()
	if err := r.Install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if out, _ := r.start(t, runner, small, in.ID).do(t, usesGreeting); out != "1" {
		t.Errorf("a sandbox says %q", out)
	}
}

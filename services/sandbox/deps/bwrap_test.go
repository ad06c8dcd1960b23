//go:build linux

package deps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/bwrap"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/depstest"
)

// live is a manager of a driver as it is used, and its index.
type live struct {
	*Manager
	driver driver.Driver
	index  *depstest.Index
	url    string
	dir    string
	t      *testing.T
}

func withBwrap(t *testing.T, cfg Config, sources ...depstest.Source) *live {
	t.Helper()
	python(t) // its pip
	r := &live{t: t, index: depstest.New(t, sources...), dir: t.TempDir()}
	// Sandboxes run under separate users, who must reach the sets.
	for dir := r.dir; strings.HasPrefix(dir, os.TempDir()+"/"); dir = dir[:strings.LastIndexByte(dir, '/')] {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := bwrap.New(bwrap.Config{Dir: r.dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Report(t.Context()); err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal("NOT TESTED: ", err)
		}
		t.Skip("NOT TESTED: ", err)
	}
	r.driver, r.url = d, r.index.Listen("127.0.0.1:0")
	cfg.Index = r.url
	if r.Manager, err = New(cfg, d); err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs the code through the agent in a sandbox that has the set, and returns its
// result.
func (r *live) run(set, code string) (out string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	sandbox, err := r.driver.Start(ctx,
		driver.Spec{Name: "deps-test", Args: agent.Args(), Limits: driver.DefaultLimits(), Set: set})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := sandbox.Destroy(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	conn, err := agent.Open(ctx, sandbox)
	if err != nil {
		r.t.Fatal(err)
	}
	exit, err := conn.Run(ctx, agent.Run{Kind: agent.Python, Code: code, Timeout: 30 * time.Second})
	if err != nil || exit.Code != 0 {
		r.t.Fatalf("%v, code %d: %s", err, exit.Code, exit.Stderr.Text)
	}
	if err := json.Unmarshal(exit.Result, &out); err != nil {
		r.t.Fatalf("%s: %v", exit.Result, err)
	}
	return out
}

// From the index to the sandbox: the model's code imports what it asked for, in a sandbox
// that has no network, and a later caller does not wait.
func TestInstalledAndImportedInASandbox(t *testing.T) {
	r := withBwrap(t, Config{}, append(numbers, greet)...)
	id, err := r.Ensure(t.Context(), want(t, "greet"), nil)
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/simple")
	code := fmt.Sprintf(`
import greet, num_bers, os, socket
address, port = %q.split(":")
try:
    socket.create_connection((address, int(port)), timeout=5)
    network = "reached"
except OSError:
    network = "no network"
try:
    open(os.path.join(os.path.dirname(greet.__file__), "x"), "w")
    writable = "writable"
except OSError:
    writable = "read-only"
f"{greet.WORD} {num_bers.N} {network} {writable} {greet.__file__}"
`, host)
	if got := r.run(id, code); got != "hello 25 no network read-only "+driver.Packages+"/greet.py" {
		t.Errorf("in the sandbox: %s", got)
	}
	asked := len(r.index.Requests())
	again, err := r.Ensure(t.Context(), want(t, "Greet"), nil)
	if err != nil || again != id {
		t.Errorf("asked again: %s, %v, want the same set", again, err)
	}
	if len(r.index.Requests()) != asked {
		t.Error("the index was asked again")
	}
}

func TestBwrapHoldsHostilePackages(t *testing.T) {
	for name, c := range map[string]struct {
		sources []depstest.Source
		code    Code
	}{
		"source only": {[]depstest.Source{depstest.SDist{Name: "evil", Version: "1.0"}}, NoWheel},
		"a need from URL": {
			[]depstest.Source{
				depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2 @ {index}/files/evil2-1.0.tar.gz"}},
				depstest.SDist{Name: "evil2", Version: "1.0"},
			}, Hostile,
		},
		"a bomb": {[]depstest.Source{wheel(depstest.Entry{Name: "bomb", Fill: 16 << 20})}, TooLarge},
		"a path": {[]depstest.Source{wheel(depstest.Entry{Name: "../../../../../../tmp/evil", Data: "x"})}, Hostile},
	} {
		t.Run(name, func(t *testing.T) {
			r := withBwrap(t, Config{MaxBytes: tooMuch}, c.sources...)
			_, err := r.Ensure(t.Context(), want(t, "evil"), nil)
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("got %v, want code %s", err, c.code)
			}
			if ran := r.index.Marks(); len(ran) > 0 {
				t.Errorf("the setup.py of %q ran", ran)
			}
			r.nothingLeft()
		})
	}
}

// nothingLeft checks that no set exists, complete or not.
func (r *live) nothingLeft() {
	r.t.Helper()
	sets, err := r.driver.Sets(r.t.Context())
	if err != nil || len(sets) > 0 {
		r.t.Errorf("there are sets %v, %v; want none", sets, err)
	}
	half := func() bool {
		entries, err := os.ReadDir(filepath.Join(r.dir, "sets"))
		return err != nil ||
			slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".new-") })
	}
	eventually(r.t, "no half-made set is left", func() bool { return !half() })
}

// When all callers of an index that does not answer have given up, nothing incomplete is
// left, and the next caller gets the set.
func TestAnInstallationThatIsEndedLeavesNothing(t *testing.T) {
	r := withBwrap(t, Config{}, append(numbers, greet)...)
	asked := make(chan struct{}, 8)
	r.index.Fault("/files/greet-1.0-py3-none-any.whl", func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		r.index.Hang(w, req)
	})
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() {
		_, err := r.Ensure(ctx, want(t, "greet"), nil)
		end <- err
	}()
	select {
	case <-asked:
	case err := <-end:
		t.Fatal(err)
	}
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	r.nothingLeft()
	r.index.Fault("/files/greet-1.0-py3-none-any.whl", nil)
	id, err := r.Ensure(t.Context(), want(t, "greet"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.run(id, "import greet; greet.WORD"); got != "hello" {
		t.Errorf("in the sandbox: %s", got)
	}
}

// A set that a sandbox uses is not removed, whatever the bounds say.
func TestASetThatASandboxUsesStays(t *testing.T) {
	r := withBwrap(t, Config{MaxSets: 1, Settle: time.Nanosecond}, append(numbers, greet)...)
	id, err := r.Ensure(t.Context(), want(t, "greet"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := r.driver.Start(t.Context(),
		driver.Spec{Name: "deps-test", Args: agent.Args(), Limits: driver.DefaultLimits(), Set: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Ensure(t.Context(), want(t, "num-bers"), nil); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		sets, err := r.driver.Sets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(sets, func(s driver.Set) bool { return s.ID == id })
	}
	if !has() {
		t.Error("the set was removed while a sandbox used it")
	}
	if err := sandbox.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Ensure(t.Context(), want(t, "num-bers==1.0"), nil); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("the set is still there when no sandbox uses it any more")
	}
}

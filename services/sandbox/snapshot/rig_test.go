package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

// rig is a bus, and a driver of sandboxes.
type rig struct {
	*testing.T
	bus    *journal.Journal
	store  *workspace.Store
	driver *drivertest.Driver
	n      int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, bus: natstest.Connect(t, natstest.Start(t)), driver: drivertest.New(t)}
	var err error
	if r.store, err = workspace.New(r.bus); err != nil {
		t.Fatal(err)
	}
	return r
}

// sandbox is a sandbox.
type sandbox struct {
	*agent.Conn
	r *rig
}

func (r *rig) sandbox() *sandbox {
	r.Helper()
	r.n++
	ctx := natstest.Context(r)
	sb, err := r.driver.Start(ctx, driver.Spec{Name: fmt.Sprint("b", r.n), Args: agent.Args()})
	if err != nil {
		r.Fatal(err)
	}
	conn, err := agent.Open(ctx, sb)
	if err != nil {
		r.Fatal(err)
	}
	return &sandbox{conn, r}
}

// does runs Python code and returns the value of its last line.
func (b *sandbox) does(code string) string {
	b.r.Helper()
	exit, err := b.Run(natstest.Context(b.r), agent.Run{Kind: agent.Python, Code: code})
	if err != nil || exit.Code != 0 {
		b.r.Fatalf("%s: %v, %s", code, err, exit.Stderr.Text)
	}
	var s string
	if json.Unmarshal(exit.Result, &s) != nil {
		return string(exit.Result)
	}
	return s
}

// tree is a line for everything in the workspace, with its content's hash.
const tree = `
import os, hashlib
def line(p):
    st = os.lstat(p)
    what = os.readlink(p) if os.path.islink(p) else ""
    if os.path.isfile(p) and not what:
        if not os.access(p, os.R_OK): os.chmod(p, 0o600)
        what = hashlib.sha256(open(p, "rb").read()).hexdigest()[:12]
        if not st.st_mode & 0o400: os.chmod(p, st.st_mode & 0o777)
    return ascii((p, oct(st.st_mode), st.st_mtime_ns, what))
"\n".join(sorted(line(os.path.join(d, n)) for d, ds, fs in os.walk(".") for n in ds + fs))`

var (
	ref    = subject.Ref{Agent: "main", Session: "s"}
	limits = Limits{Bytes: 64 << 20, Files: 20000}
)

func (r *rig) copy() *Copy { return New(r.store, limits, ref, "t1-p1-c0", "one") }

// save saves what is in the sandbox.
func (r *rig) save(c *Copy, b Sandbox, turn uint64) error {
	ch, err := c.Look(natstest.Context(r), b)
	if err != nil || !ch.Any() {
		return err
	}
	return c.Save(natstest.Context(r), b, ch, Point{Call: fmt.Sprintf("t%d-p1-c1", turn), Turn: turn})
}

func (r *rig) mustSave(c *Copy, b Sandbox, turn uint64) {
	r.Helper()
	if err := r.save(c, b, turn); err != nil {
		r.Fatal(err)
	}
}

// restored returns a new sandbox with what is stored, and its copy.
func (r *rig) restored(self subject.Instance) (*sandbox, *Copy) {
	r.Helper()
	h, found, err := Find(natstest.Context(r), r.store, ref, "t1-p1-c0")
	if err != nil || !found {
		r.Fatalf("found %v, %v", found, err)
	}
	b := r.sandbox()
	c, err := Restore(natstest.Context(r), r.store, limits, h, self, b)
	if err != nil {
		r.Fatal(err)
	}
	return b, c
}

// stored returns how many packs are stored.
func (r *rig) stored() int {
	r.Helper()
	names, err := r.store.Stored(natstest.Context(r), ref)
	if err != nil {
		r.Fatal(err)
	}
	return len(names)
}

func (r *rig) equal(a, b *sandbox) {
	r.Helper()
	if x, y := a.does(tree), b.does(tree); x != y {
		r.Errorf("restored is\n%s\nwant\n%s", y, x)
	}
}

// fails is a sandbox whose gathering fails after some files.
type fails struct {
	Sandbox
	after int
}

var errDied = errors.New("died")

func (f *fails) Gather(ctx context.Context, paths []json.RawMessage, each func(agent.Found, io.Reader) error) error {
	return f.Sandbox.Gather(ctx, paths, func(x agent.Found, content io.Reader) error {
		if f.after--; f.after < 0 {
			return errDied
		}
		return each(x, content)
	})
}

// counts is a sandbox that counts the files that are read.
type counts struct {
	Sandbox
	read int
}

func (c *counts) Gather(ctx context.Context, paths []json.RawMessage, each func(agent.Found, io.Reader) error) error {
	c.read += len(paths)
	return c.Sandbox.Gather(ctx, paths, each)
}

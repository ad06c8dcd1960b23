package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/test/natstest"
)

func TestARestoredWorkspaceIsTheSame(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`
import os
os.makedirs("d/e/empty")
open("d/e/f", "w").write("text")
open(".hidden", "w")
open("big", "wb").write(os.urandom(1300000))
open(b"not utf-8 \xff\xfe", "w").write("1")
open("<&>\u2028", "w").write("2")
open("secret", "w").write("3"); os.chmod("secret", 0)
open("run", "w").write("4"); os.chmod("run", 0o6755)
with open("sparse", "wb") as f: f.truncate(3 << 20)
os.symlink("/usr/bin/python3", "python"); os.symlink("../../..", "d/up"); os.symlink(b"\xff", "odd")
os.mkfifo("fifo"); os.link("d/e/f", "hard")
os.utime("d/e/f", ns=(1, 1577836800123456789)); os.utime("d", (5, 5)); os.utime("python", (7, 7), follow_symlinks=False)
os.chmod("d/e", 0o750)`)
	c := r.copy()
	r.mustSave(c, a, 2)
	b, _ := r.restored("two")
	a.does(`import os; os.remove("fifo"); os.chmod("run", 0o755)`) // neither a fifo nor setuid is restored
	r.equal(a, b)
	if used := b.does(`import os; str(os.stat("sparse").st_blocks)`); used != "0" {
		t.Errorf("the hole of a sparse file takes %s blocks", used)
	}
}

func TestOnlyWhatHasChangedIsReadAndStored(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`
import os
for d in range(50):
    os.mkdir(f"d{d}")
    for i in range(100): open(f"d{d}/{i}", "w").write(f"file {d} {i} " * 20)
open("big", "wb").write(os.urandom(2 << 20))`)
	c := r.copy()
	r.mustSave(c, a, 2)
	if n := r.stored(); n > 12 {
		t.Errorf("5,001 files are %d packs", n)
	}
	a.does("import time; time.sleep(0.1)") // what was just written is read twice
	r.mustSave(c, a, 3)
	before := c.Head()
	a.does(`open("d7/7", "a").write("x"); open("big", "ab").write(b"y")`)
	n, at := &counts{Sandbox: a}, r.stored()
	r.mustSave(c, n, 4)
	if n.read != 2 || r.stored() > at+2 || c.Head().Revision == before.Revision {
		t.Errorf("%d files were read, %d packs became %d", n.read, at, r.stored())
	}
	n.read = 0
	a.does(`import os; os.utime("d8/8"); os.chmod("d9/9", 0o600)`)
	r.mustSave(c, n, 5)
	if n.read > 4 { // these two, and the two that have just been written
		t.Errorf("%d files were read", n.read)
	}
	b, again := r.restored("two")
	r.equal(a, b)
	n = &counts{Sandbox: b}
	b.does(`open("d1/1", "a").write("x")`)
	r.mustSave(again, n, 6)
	if n.read > 1000 {
		t.Errorf("after a restore, %d files were read", n.read)
	}
	b2, _ := r.restored("three")
	r.equal(b, b2)
}

// However often files change, the snapshot takes space in proportion to what is there.
func TestWhatIsNoLongerUsedIsRemoved(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	c := r.copy()
	for i := range 40 {
		a.does(`import os; open("f", "wb").write(os.urandom(100000)); open("log", "ab").write(os.urandom(1000)); ` +
			`open(f"n{len(os.listdir())}", "w").write("n")`)
		r.mustSave(c, a, uint64(i+2))
	}
	if n := r.stored(); n > 2*manySmall {
		t.Errorf("%d packs are stored", n)
	}
	b, again := r.restored("two")
	r.equal(a, b)
	b.does(`import os; [os.remove(n) for n in os.listdir() if n != "out"]`)
	r.mustSave(again, b, 100)
	if n := r.stored(); n != 1 {
		t.Errorf("of nothing, %d packs are stored", n)
	}
}

func TestACrashLeavesTheSnapshotBefore(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`open("f", "w").write("first")`)
	c := r.copy()
	r.mustSave(c, a, 2)
	want := a.does(tree)
	a.does(`
import os
for i in range(20): open(f"g{i}", "wb").write(os.urandom(100000))
open("f", "w").write("second")`)
	for _, after := range []int{0, 1, 10} { // packs are stored by then, and no head
		if err := r.save(c, &fails{a, after}, 3); !errors.Is(err, errDied) {
			t.Fatal(err)
		}
	}
	ch, err := c.Look(natstest.Context(t), a)
	if err != nil {
		t.Fatal(err)
	}
	w := c.writer(ch) // it dies after the index
	if err := errors.Join(w.keep(t.Context(), true), a.Gather(t.Context(), ch.read, w.read), w.flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	x, _ := w.index()
	if _, _, err := r.store.PutIndex(natstest.Context(t), ref, c.head.Token, x); err != nil {
		t.Fatal(err)
	}
	orphans := r.stored()
	b, d := r.restored("two")
	if got := b.does(tree); got != want {
		t.Errorf("restored is\n%s\nwant\n%s", got, want)
	}
	b.does(`open("f", "w").write("third")`)
	r.mustSave(d, b, 4)
	if n := r.stored(); n != len(d.names()) || n >= orphans {
		t.Errorf("%d packs are stored, and %d are in use", n, len(d.names()))
	}
}

// An instance that was taken for dead must not overwrite what its successor saves.
func TestAnOvertakenInstanceSavesNothing(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`open("f", "w").write("one")`)
	one := r.copy()
	r.mustSave(one, a, 2)
	b, two := r.restored("two")
	a.does(`open("f", "w").write("late")`)
	if err := r.save(one, a, 3); !errors.Is(err, ErrOvertaken) {
		t.Errorf("it saves, or fails with %v", err)
	}
	if err := one.Mark(natstest.Context(t), "t3-p1-c0"); !errors.Is(err, ErrOvertaken) {
		t.Errorf("it marks, or fails with %v", err)
	}
	b.does(`open("g", "w").write("two")`)
	r.mustSave(two, b, 4)
	last, _ := r.restored("three")
	r.equal(b, last)
}

// A successor that could not claim the session, and an instance before that saves late.
func TestALateSaveBeforeASuccessorsFirstDoesNoHarm(t *testing.T) {
	r := newRig(t)
	a, b := r.sandbox(), r.sandbox()
	one := r.copy()
	a.does(`open("f", "w").write("one")`)
	r.mustSave(one, a, 2)
	two := New(r.store, limits, ref, "t5-p1-c0", "two") // the session was reset meanwhile
	b.does(`open("g", "w").write("two")`)
	if err := two.begin(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	a.does(`open("f", "w").write("late")`)
	r.mustSave(one, a, 3)
	r.mustSave(two, b, 6)
	if err := r.save(one, a, 4); err != nil { // nothing has changed for it
		t.Error(err)
	}
	a.does(`open("f", "w").write("later")`)
	if err := r.save(one, a, 4); !errors.Is(err, ErrOvertaken) {
		t.Errorf("it saves, or fails with %v", err)
	}
	if _, found, err := Find(natstest.Context(t), r.store, ref, "t1-p1-c0"); found || err != nil {
		t.Errorf("the files before the reset: %v, %v", found, err)
	}
	if n := r.stored(); n != len(two.names()) {
		t.Errorf("%d packs are stored, and %d are in use", n, len(two.names()))
	}
}

func TestADeletionDuringASaveStays(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`open("f", "w").write("one")`)
	c := r.copy()
	for _, first := range []bool{true, false} {
		ch, err := c.Look(natstest.Context(t), a)
		if err == nil {
			err = c.begin(natstest.Context(t))
		}
		if err == nil {
			err = workspace.Delete(natstest.Context(t), r.bus, ref)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Save(natstest.Context(t), a, ch, Point{Call: "t2-p1-c0", Turn: 2}); err == nil {
			t.Errorf("the deletion is undone (first: %v)", first)
		}
		if _, err := r.store.Head(natstest.Context(t), ref); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("there is a head: %v", err)
		}
		r.mustSave(c, a, 3) // the session goes on
		b, _ := r.restored("one")
		r.equal(a, b)
		a.does(`open("f", "a").write("more")`)
		c = New(r.store, limits, ref, "t1-p1-c0", "one")
	}
}

// changing is a sandbox in which a file changes while it is read.
type changing struct {
	*sandbox
	t *testing.T
}

func (c *changing) Gather(ctx context.Context, paths []json.RawMessage, each func(agent.Found, io.Reader) error) error {
	return c.Conn.Gather(ctx, paths, func(f agent.Found, content io.Reader) error {
		if _, err := io.CopyN(io.Discard, content, 1<<20); err != nil {
			c.t.Error(err)
		}
		if _, err := c.Write(ctx, "big", []byte("more"), agent.Append); err != nil {
			c.t.Error(err)
		}
		_, err := io.Copy(io.Discard, content)
		return err
	})
}

func TestAFileThatChangesMeanwhileFailsTheSave(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`import os; open("big", "wb").write(os.urandom(4 << 20))`)
	c := r.copy()
	err := r.save(c, &changing{a, t}, 2)
	if err == nil || !strings.Contains(err.Error(), "changes while it is") {
		t.Errorf("got %v", err)
	}
	r.mustSave(c, a, 3)
	b, _ := r.restored("two")
	r.equal(a, b)
}

func TestAWorkspaceThatIsTooLargeNamesTheLargestFiles(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`
for n in "abcd":
    with open(n, "wb") as f: f.truncate(30 << 20 if n == "b" else 20 << 20)`)
	c := r.copy()
	err := r.save(c, a, 2)
	if err == nil || err.Error() != "the files in /workspace have 90MiB, and at most 64MiB are saved for a session "+
		"(SKANDHA_SANDBOX_KEEP); the largest: b (30MiB), a (20MiB), c (20MiB)" {
		t.Errorf("got %v", err)
	}
	c.limits.Files = 3
	var large *TooLargeError
	if err := r.save(c, a, 2); !errors.As(err, &large) || !strings.Contains(err.Error(), "more than the 3 files") {
		t.Errorf("got %v", err)
	}
	c.limits = limits
	a.does(`import os; os.remove("b")`)
	r.mustSave(c, a, 3)
}

func TestDamageAndForgeryAreRefused(t *testing.T) {
	r := newRig(t)
	a := r.sandbox()
	a.does(`open("f", "w").write("content")`)
	c := r.copy()
	r.mustSave(c, a, 2)
	find := func() workspace.Head {
		h, found, err := Find(natstest.Context(t), r.store, ref, "t1-p1-c0")
		if err != nil || !found {
			t.Fatalf("%v, %v", found, err)
		}
		return h
	}
	for _, path := range []string{`"../out"`, `"/tmp/out"`, `"a/../../out"`} {
		names, _, err := r.store.PutIndex(natstest.Context(t), ref, "forged", workspace.Index{Files: []workspace.File{
			{Path: json.RawMessage(path), Kind: "f", Mode: 0o644},
		}})
		h := find()
		h.Index = names
		if err == nil {
			_, err = r.store.Commit(natstest.Context(t), h)
		}
		if err != nil {
			t.Fatal(err)
		}
		var refused *agent.Error
		_, err = Restore(natstest.Context(t), r.store, limits, find(), "two", r.sandbox())
		if !errors.As(err, &refused) || refused.Code != "outside" {
			t.Errorf("%s: %v", path, err)
		}
	}
	bucket := r.bus.Bucket(journal.BucketFiles)
	for _, name := range find().Index {
		if err := bucket.Purge(natstest.Context(t), "main.s."+name, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Restore(natstest.Context(t), r.store, limits, find(), "two", r.sandbox()); !errors.Is(err, workspace.ErrDamaged) {
		t.Errorf("a missing index: %v", err)
	}
	h := find()
	h.Session = "other"
	text, err := json.Marshal(h)
	if err == nil {
		_, err = bucket.Put(natstest.Context(t), "main.s.head", text, journal.Fence{Revision: h.Revision})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Find(natstest.Context(t), r.store, ref, "t1-p1-c0"); !errors.Is(err, workspace.ErrDamaged) {
		t.Errorf("the head of another session: %v", err)
	}
}

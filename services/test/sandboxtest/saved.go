package sandboxtest

import (
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/snapshot"
	"skandha.dev/services/test/natstest"
)

// filesSurvive saves the workspace of a sandbox, ends it, and restores the files in another one.
func (s *suite) filesSurvive(t *testing.T) {
	store, err := workspace.New(natstest.Connect(t, natstest.Start(t)))
	if err != nil {
		t.Fatal(err)
	}
	ref, limits := subject.Ref{Agent: "main", Session: "s"}, snapshot.Limits{Bytes: 32 << 20, Files: 1000}
	a := s.start(t, sandboxOptions{})
	var want, got []any
	if err := a.eval(t.Context(), &want, `(os.makedirs("d/e"), open("d/e/f", "w").write("text"), os.chmod("d/e/f", 0o640),
os.utime("d/e/f", (1, 1577836800)), os.symlink("/etc/passwd", "link"), open("none", "w").write("x"), os.chmod("none", 0),
open("big", "wb").write(bytes(range(256)) * 8000)) and [open("d/e/f").read(), os.stat("d/e/f").st_mode,
os.stat("d/e/f").st_mtime, os.readlink("link"), os.stat("none").st_mode, os.stat("big").st_size]`); err != nil {
		t.Fatal(err)
	}
	c := snapshot.New(store, limits, ref, "t1", "one")
	ch, err := c.Look(within(t), a)
	if err == nil {
		err = c.Save(within(t), a, ch, snapshot.Point{Call: "t1-p1-c0", Turn: 1})
	}
	if err == nil {
		err = a.end()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := s.start(t, sandboxOptions{})
	h, found, err := snapshot.Find(within(t), store, ref, "t1")
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	if _, err = snapshot.Restore(within(t), store, limits, h, "two", b); err != nil {
		t.Fatal(err)
	}
	if err := b.eval(t.Context(), &got, `[open("d/e/f").read(), os.stat("d/e/f").st_mode, os.stat("d/e/f").st_mtime,
os.readlink("link"), os.stat("none").st_mode, os.stat("big").st_size]`); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("restored is %v, want %v", got, want)
			break
		}
	}
	if _, _, err := b.Read(within(t), driver.Workspace+"/link", 0, 100); err == nil {
		t.Error("a link that leads out of the workspace is followed")
	}
}

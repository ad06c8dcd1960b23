package deps

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/depstest"
)

// wheel returns a wheel with entries that no tool would write.
func wheel(entries ...depstest.Entry) depstest.Wheel {
	return depstest.Wheel{Name: "evil", Version: "1.0", Entries: entries}
}

const tooMuch = 4 << 20 // what the tests' sets may hold

// A package cannot affect the machine that installs it: a directory of the host that the
// installing sandbox could write to stays empty, no code of a package runs, and no set is
// left.
func TestHostilePackages(t *testing.T) {
	filler := depstest.Entry{Name: "filler.bin", Fill: 3 << 20}
	for name, c := range map[string]struct {
		sources []depstest.Source
		code    Code
	}{
		"a path with ..": {
			[]depstest.Source{wheel(depstest.Entry{Name: "../../../../../../outside/evil", Data: "x"})}, Hostile,
		},
		"a path from the root": {[]depstest.Source{wheel(depstest.Entry{Name: "/outside/evil", Data: "x"})}, Hostile},
		"a script elsewhere": {
			[]depstest.Source{wheel(depstest.Entry{Name: "evil-1.0.data/scripts/../../../../../../outside/evil", Data: "x"})},
			Hostile,
		},
		"data elsewhere": {
			[]depstest.Source{
				wheel(depstest.Entry{Name: "evil-1.0.data/data//outside/../../../../../../../../outside/evil", Data: "x"}),
			}, Hostile,
		},
		"a file behind a link": {
			[]depstest.Source{
				wheel(depstest.Entry{Name: "out", Data: "/outside", Mode: fs.ModeSymlink | 0o777},
					depstest.Entry{Name: "out/evil", Data: "x"}),
			}, Failed,
		},
		"no zip at all": {
			[]depstest.Source{
				depstest.File{
					Project: "evil", Name: "evil-1.0-py3-none-any.whl",
					Data: depstest.SDist{Name: "evil", Version: "1.0"}.File("").Data,
				},
			}, Hostile,
		},
		"a bomb of zeros": {[]depstest.Source{wheel(depstest.Entry{Name: "bomb", Fill: 16<<20 + 1})}, TooLarge},
		"a bomb of metadata": {
			[]depstest.Source{wheel(depstest.Entry{Name: "evil-1.0.dist-info/entry_points.txt", Fill: 16<<20 + 1})}, TooLarge,
		},
		"a bomb of several": {
			[]depstest.Source{
				depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2"}, Entries: []depstest.Entry{filler}},
				depstest.Wheel{Name: "evil2", Version: "1.0", Entries: []depstest.Entry{{Name: "other.bin", Fill: 3 << 20}}},
			}, TooLarge,
		},
		"a bomb of many files": {[]depstest.Source{wheel(many(1001)...)}, TooLarge},
		"a need from a URL": {
			[]depstest.Source{
				depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2 @ {index}/files/evil2-1.0.tar.gz"}},
				depstest.SDist{Name: "evil2", Version: "1.0"},
			}, Hostile,
		},
		"a wheel from a URL": {
			[]depstest.Source{
				depstest.Wheel{
					Name: "evil", Version: "1.0", Requires: []string{"evil2 @ {index}/files/evil2-1.0-py3-none-any.whl"},
				}, depstest.Wheel{Name: "evil2", Version: "1.0"},
			}, Hostile,
		},
		"a need from git": {
			[]depstest.Source{
				depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2 @ git+{index}/files/evil2"}},
			}, Hostile,
		},
		"a need from a file": {
			[]depstest.Source{depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2 @ file:///etc/passwd"}}},
			Hostile,
		},
		"source only": {[]depstest.Source{depstest.SDist{Name: "evil", Version: "1.0"}}, NoWheel},
		"source as what it needs": {
			[]depstest.Source{
				depstest.Wheel{Name: "evil", Version: "1.0", Requires: []string{"evil2"}},
				depstest.SDist{Name: "evil2", Version: "1.0"},
			}, NoWheel,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t, Config{MaxBytes: tooMuch, MaxFiles: 1000}, c.sources...)
			b.sandboxes.outside = t.TempDir()
			_, err := b.ensure("evil")
			t.Log(err)
			b.refused(err, c.code)
			if entries, err := os.ReadDir(b.sandboxes.outside); err != nil || len(entries) > 0 {
				t.Errorf("outside there is %v (%v), want nothing", entries, err)
			}
			if ran := b.index.Marks(); len(ran) > 0 {
				t.Errorf("the setup.py of %q ran", ran)
			}
			for _, path := range b.index.Requests() {
				if strings.HasPrefix(path, "/files/evil2") && c.code == Hostile {
					t.Errorf("%s was fetched from its URL", path)
				}
			}
		})
	}
}

func many(n int) []depstest.Entry {
	out := make([]depstest.Entry, n)
	for i := range out {
		out[i].Name = "many/f" +
			string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26), 'a' + byte(i/17576%26)})
	}
	return out
}

// A wheel is installed, even if a newer source distribution exists.
func TestAWheelIsTakenRatherThanSource(t *testing.T) {
	b := setUp(t, Config{}, append(numbers, depstest.SDist{Name: "num-bers", Version: "9.0"})...)
	id, err := b.ensure("num-bers")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.sandboxes.run(id, "import num_bers; print(num_bers.N)"); got != "25" {
		t.Errorf("the package says %q, want 25", got)
	}
	if ran := b.index.Marks(); len(ran) > 0 {
		t.Errorf("the setup.py of %q ran", ran)
	}
}

// Files that an interpreter would run automatically are not in the set; scripts are plain
// files, and no file has more permissions than it needs.
func TestWhatRunsByItselfIsDropped(t *testing.T) {
	b := setUp(t, Config{}, depstest.Wheel{
		Name: "evil", Version: "1.0",
		Files: map[string]string{
			"evil.py": "", "evil.pth": "import os", "sitecustomize.py": "x = 1", "usercustomize/__init__.py": "",
			"pkg/kept.pth":               "text",
			"evil-1.0.data/scripts/tool": "#!python\nprint('tool')\n",
		},
		Entries: []depstest.Entry{{Name: "root", Data: "#!/bin/sh\n", Mode: fs.ModeSetuid | fs.ModeSetgid | 0o777}},
	})
	id, err := b.ensure("evil")
	if err != nil {
		t.Fatal(err)
	}
	files := b.sandboxes.files(id)
	for _, f := range files {
		if dropped := path.Base(f); f != "pkg/kept.pth" &&
			(strings.Contains(dropped, "customize") || strings.HasSuffix(dropped, ".pth")) {
			t.Errorf("the set has %s", f)
		}
		info, err := os.Lstat(path.Join(b.sandboxes.dir, id, f))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|0o022) != 0 || info.Mode()&fs.ModeType&^fs.ModeDir != 0 {
			t.Errorf("%s has mode %v", f, info.Mode())
		}
	}
	for _, f := range []string{"evil.py", "bin/tool", "root", "pkg/kept.pth"} {
		if !slices.Contains(files, f) {
			t.Errorf("the set %q has no %s", files, f)
		}
	}
}

// An index that never stops sending is stopped.
func TestAnEndlessFile(t *testing.T) {
	b := setUp(t, Config{MaxBytes: tooMuch}, numbers...)
	b.index.Fault("/files/num_bers-2.5-py3-none-any.whl", func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	_, err := b.ensure("num-bers")
	b.refused(err, TooLarge)
}

// inProgram runs Python that has install.py's functions, in a sandbox with the host's
// directory dir at Packages.
func inProgram(t *testing.T, dir, code string) map[string]string {
	t.Helper()
	b := newSandboxes(t)
	cmd := b.command(t.Context(), dir, "--bind", "-I", "-c",
		"import sys, json\nns = {'__name__': 'install'}\nexec(sys.argv[1], ns)\n"+code, program)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said map[string]string
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return said
}

// The guard confines pip whatever pip allows, so it is tested without pip.
func TestTheGuard(t *testing.T) {
	said := inProgram(t, t.TempDir(), `
import os, subprocess, shutil, multiprocessing
ns["guard"]("`+driver.Packages+`", 1 << 20, 100)
os.chdir("`+driver.Packages+`")
from pip._vendor.packaging.requirements import Requirement
tries = {
    "start": lambda: subprocess.run(["true"]), "shell": lambda: os.system("true"), "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "fork": os.fork, "exec": lambda: os.execv("/bin/true", ["true"]), "process": lambda: multiprocessing.Process(target=print).start(),
    "write outside": lambda: open("/tmp/x", "w"), "append outside": lambda: open("/tmp/x", "ab"), "low-level outside": lambda: os.open("/tmp/x", os.O_CREAT),
    "dots": lambda: open("`+driver.Packages+`/../tmp/x", "w"), "sibling": lambda: open("`+driver.Packages+`x", "w"),
    "symlink": lambda: os.symlink("/", "l"), "hard link": lambda: os.link("inside", "m"), "URL": lambda: Requirement("a @ http://x/y.whl"),
    "write inside": lambda: open("inside", "w").close(), "read outside": lambda: open("/usr/bin/env", "rb").close(),
    "move inside": lambda: shutil.move("inside", "moved"), "name": lambda: Requirement("a>=1"),
}
said = {}
for name in ["write inside", *tries]:
    try:
        tries[name]()
        said[name] = "done"
    except Exception as e:
        said[name] = "refused" if "skandha: " in str(e) else repr(e)
print(json.dumps(said))
`)
	for name, got := range said {
		want := "refused"
		if slices.Contains([]string{"write inside", "read outside", "move inside", "name"}, name) {
			want = "done"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if len(said) != 18 {
		t.Errorf("%d were tried, want 18", len(said))
	}
}

// The result is checked whatever pip did, so the check is tested without pip.
func TestWhatIsThereIsLookedAt(t *testing.T) {
	said := inProgram(t, t.TempDir(), `
import os, shutil
top = "`+driver.Packages+`"
cases = {
    "plain": lambda: open(top + "/a.py", "w").close(),
    "a link outside": lambda: os.symlink("/etc/passwd", top + "/l"),
    "a link inside": lambda: os.symlink("a.py", top + "/l"),
    "a deep link": lambda: (os.makedirs(top + "/d/e"), os.symlink("/", top + "/d/e/l")),
    "a hard link": lambda: (open(top + "/a.py", "w").close(), os.link(top + "/a.py", top + "/b.py")),
    "a pipe": lambda: os.mkfifo(top + "/p"),
    "many files": lambda: [open(f"{top}/{i}", "w").close() for i in range(101)],
    "a large file": lambda: open(top + "/big", "wb").truncate(2 << 20),
}
said = {}
for name, make in cases.items():
    make()
    try:
        ns["check"](top, 1 << 20, 100)
        said[name] = "fine"
    except ns["Refused"] as e:
        said[name] = e.code
    for left in os.listdir(top):
        ns["remove"](os.path.join(top, left))
print(json.dumps(said))
`)
	for name, want := range map[string]string{
		"plain": "fine", "a link outside": "refused", "a link inside": "refused", "a deep link": "refused",
		"a hard link": "refused", "a pipe": "refused", "many files": "too_large", "a large file": "too_large",
	} {
		if said[name] != want {
			t.Errorf("%s: %q, want %s", name, said[name], want)
		}
	}
}

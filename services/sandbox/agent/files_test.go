package agent_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
)

func codeOf(err error) string {
	var e *agent.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	}
	return err.Error()
}

func TestFilesAreWrittenAndRead(t *testing.T) {
	b := start(t)
	ctx := t.Context()
	f, err := b.Write(ctx, "a/b/c.txt", []byte("hello"), agent.Replace)
	if err != nil || f.Path != "a/b/c.txt" || f.Type != "file" || f.Size != 5 || f.Mode != 0o644 || f.ModTime.IsZero() {
		t.Fatalf("write: %+v, %v", f, err)
	}
	if _, err := b.Write(ctx, "a/b/c.txt", []byte("x"), agent.Create); codeOf(err) != "exists" {
		t.Errorf("create what is there: %v", err)
	}
	if _, err := b.Write(ctx, "new", []byte("x"), agent.Create); err != nil {
		t.Errorf("create: %v", err)
	}
	if f, err := b.Write(ctx, "a/b/c.txt", []byte(" world"), agent.Append); err != nil || f.Size != 11 {
		t.Errorf("append: %+v, %v", f, err)
	}
	if f, err := b.Write(ctx, "log", []byte("1"), agent.Append); err != nil || f.Size != 1 {
		t.Errorf("append to nothing: %+v, %v", f, err)
	}
	for _, tc := range []struct {
		offset, limit int64
		want          string
	}{{0, 100, "hello world"}, {6, 3, "wor"}, {11, 5, ""}, {1 << 40, 5, ""}, {0, 0, ""}} {
		data, size, err := b.Read(ctx, b.workspace+"/a/./b//c.txt", tc.offset, tc.limit)
		if string(data) != tc.want || size != 11 || err != nil {
			t.Errorf("read %d bytes from %d: %q of %d, %v", tc.limit, tc.offset, data, size, err)
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 5<<16)
	if f, err := b.Write(ctx, "big", big, agent.Replace); err != nil || f.Size != int64(len(big)) {
		t.Fatalf("write %d bytes: %+v, %v", len(big), f, err)
	}
	if data, _, err := b.Read(ctx, "big", 0, 1<<30); err != nil || !bytes.Equal(data, big) {
		t.Errorf("read %d of %d bytes, %v", len(data), len(big), err)
	}
	b.shell(t, "chmod 750 new; mkfifo fifo; ln -s new link")
	if f, err := b.Write(ctx, "link", []byte("through"), agent.Replace); err != nil ||
		f.Mode != 0o750 && f.Type != "link" {
		t.Errorf("through a link: %+v, %v", f, err)
	}
	if got := b.shell(t, "cat new; stat -c %a new").Stdout.Text; got != "through750\n" {
		t.Errorf("after it: %q", got)
	}
	if left := b.shell(t, "ls -A").Stdout.Text; strings.Contains(left, ".tmp-") {
		t.Errorf("something is left: %s", left)
	}
}

func TestDirectoriesAreListedMadeMovedAndRemoved(t *testing.T) {
	b := start(t)
	ctx := t.Context()
	list := func(path string) string {
		files, err := b.List(ctx, path)
		if err != nil {
			return codeOf(err)
		}
		s := []string{}
		for _, f := range files {
			s = append(s, f.Type+" "+f.Path)
		}
		return strings.Join(s, ", ")
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("an empty workspace", list(""), "")
	check("mkdir", codeOf(b.Mkdir(ctx, "d/e/f")), "")
	check("mkdir again", codeOf(b.Mkdir(ctx, "d/e/f")), "")
	check("mkdir of nothing", codeOf(b.Mkdir(ctx, "")), "")
	b.write(t, "d/file", "x")
	check("mkdir on a file", codeOf(b.Mkdir(ctx, "d/file")), "exists")
	check("mkdir below a file", codeOf(b.Mkdir(ctx, "d/file/x")), "not_a_directory")
	b.shell(t, "ln -s d l; ln -s nowhere dangling; mkfifo d/p")
	check("list", list("."), "dir d, link dangling, link l, dir out")
	check("list through a link", list("l"), "dir l/e, file l/file, other l/p")
	check("list a file", list("d/file"), "not_a_directory")
	check("list nothing", list("nope"), "not_found")
	if f, err := b.Stat(ctx, "l"); err != nil || f.Type != "link" || f.Target != "d" {
		t.Errorf("stat of a link: %+v, %v", f, err)
	}
	if f, err := b.Stat(ctx, ""); err != nil || f.Type != "dir" || f.Path != "" {
		t.Errorf("stat of the workspace: %+v, %v", f, err)
	}
	check("move", codeOf(b.Move(ctx, "d/file", "x/y/z", false)), "")
	check("moved", b.read(t, "x/y/z"), "x")
	b.write(t, "other", "o")
	check("move onto a file", codeOf(b.Move(ctx, "other", "x/y/z", false)), "exists")
	check("move over a file", codeOf(b.Move(ctx, "other", "x/y/z", true)), "")
	check("moved over", b.read(t, "x/y/z"), "o")
	check("move nothing", codeOf(b.Move(ctx, "nope", "n", false)), "not_found")
	check("move into itself", codeOf(b.Move(ctx, "x", "x/y/w", false)), "invalid")
	check("move over a directory that is not empty", codeOf(b.Move(ctx, "d", "x", true)), "not_empty")
	check("move the workspace", codeOf(b.Move(ctx, "", "w", false)), "invalid")
	check("remove what is not empty", codeOf(b.Remove(ctx, "d", false)), "not_empty")
	check("remove a link", codeOf(b.Remove(ctx, "l", true)), "")
	check("what it led to", list("d"), "dir d/e, other d/p")
	check("remove a tree", codeOf(b.Remove(ctx, "d", true)), "")
	check("remove nothing", codeOf(b.Remove(ctx, "d", true)), "not_found")
	check("remove the workspace", codeOf(b.Remove(ctx, "", true)), "invalid")
	b.python(t, "import os\nfor i in range(1500):\n os.mkdir('deep'); os.chdir('deep'); open('f', 'w')")
	check("remove what is nested 1500 deep", codeOf(b.Remove(ctx, "deep", true)), "")
	b.shell(t, "mkdir -p closed/in; touch closed/in/x; chmod 0 closed/in closed")
	check("remove what may not be read", codeOf(b.Remove(ctx, "closed", true)), "")
	check("in the end", list(""), "link dangling, dir out, dir x")
	b.python(t, "for i in range(5000): open('many-%04d' % i, 'w')")
	if files, err := b.List(ctx, ""); err != nil || len(files) != 5003 {
		t.Errorf("of 5003 names %d are listed, %v", len(files), err)
	}
}

// No path leads out of the workspace.
func TestPathsAreConfined(t *testing.T) {
	b := start(t)
	ctx := t.Context()
	b.shell(t,
		"mkdir d; echo inside > d/f; ln -s /etc etc; ln -s ../../etc rel; ln -s ../.. d/up; ln -s ../d/f d/in; ln -s "+
			b.workspace+"/d abs; "+
			"ln -s a b; ln -s b a; ln -s /proc/self/root root; mkfifo p; ln -s . here")
	for path, want := range map[string]string{
		"../x": "outside", "d/../../x": "outside", "/etc/passwd": "outside", b.workspace + "x/f": "outside",
		b.workspace + "/../x": "outside",
		"etc/passwd":          "outside", "rel/passwd": "outside", "d/up/etc/passwd": "outside", "root/etc/passwd": "outside",
		"a": "invalid", "a/x": "invalid",
		"nul\x00": "invalid", strings.Repeat("x/", 200) + "x": "invalid", strings.Repeat("x", 300): "invalid",
		strings.Repeat("x", 5000): "invalid",
		"p":                       "invalid", "": "is_a_directory", "d": "is_a_directory", "here/here/d": "is_a_directory",
		"nope":  "not_found",
		"d/f/x": "not_a_directory",
		"d/in":  "", "abs/f": "", b.workspace + "/abs/in": "", "d/./f": "", "here/here/d/f": "",
	} {
		data, _, err := b.Read(ctx, path, 0, 100)
		if codeOf(err) != want || want == "" && string(data) != "inside\n" {
			t.Errorf("read %.40q: %q, %v, want %s", path, data, err, want)
		}
		if want == "outside" || want == "invalid" {
			for what, err := range map[string]error{
				"mkdir": b.Mkdir(ctx, path+"/new"), "move": b.Move(ctx, "d/f", path+"/new", true),
				"remove": b.Remove(ctx, path+"/hosts", true),
				"write":  second(b.Write(ctx, path+"/new", nil, agent.Append)),
				"edit":   second(b.Edit(ctx, path+"/hosts", "a", "b", true)),
				"list":   second(b.List(ctx, path)),
			} {
				if c := codeOf(err); c != "outside" && c != "invalid" && c != "not_a_directory" {
					t.Errorf("%s below %.40q: %v", what, path, err)
				}
			}
		}
	}
	if _, err := os.Lstat(b.workspace + "/../new"); err == nil {
		t.Error("something was written beside the workspace")
	}
	if _, _, err := b.Glob(ctx, "../*", 0); codeOf(err) != "outside" {
		t.Errorf("glob: %v", err)
	}
	for _, root := range []string{"etc/**", "**/passwd", "root/**"} {
		if files, _, err := b.Glob(ctx, root, 0); codeOf(err) != "" && codeOf(err) != "outside" || len(files) > 1 {
			t.Errorf("glob %s: %d files, %v", root, len(files), err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// While a run swaps a directory for a link as fast as it can, nothing outside is
// ever read.
func TestASwapRaceLeadsNowhere(t *testing.T) {
	b := start(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/f", []byte("SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	b.shell(t, "mkdir real; echo fine > real/f; ln -s "+outside+" evil")
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.python(t, "import os, time", "end = time.time() + 1.5", "while time.time() < end:",
			" os.rename('real', 'x'); os.rename('evil', 'real'); os.rename('real', 'evil'); os.rename('x', 'real')")
	}()
	seen := map[string]int{}
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		data, _, err := b.Read(t.Context(), "real/f", 0, 100)
		if bytes.Contains(data, []byte("SECRET")) {
			t.Fatal("the race was won by the run")
		}
		seen[codeOf(err)]++
	}
	t.Logf("answers: %v", seen)
}

func TestGlobAndGrepFindFiles(t *testing.T) {
	b := start(t)
	ctx := t.Context()
	for name, text := range map[string]string{
		"a.py": "import os\nprint(1)\n", "d/b.py": "print(2)\r\nPrint(3)", "d/e/c.py": "x = 'print'", "d/e/c.txt": "print me",
		".hidden/x.py": "print(9)",
		"[x].md":       "", "d/bin": "print\x00", "long": strings.Repeat("y", 1000) + "print\n", "ümlaut.txt": "grüße",
	} {
		b.write(t, name, text)
	}
	b.shell(t, "ln -s / root; ln -s .. d/loop")
	for pattern, want := range map[string]string{
		"*.py": "a.py", "**/*.py": "a.py d/b.py d/e/c.py",
		"**":  "[x].md a.py d d/b.py d/bin d/e d/e/c.py d/e/c.txt d/loop long out root ümlaut.txt",
		"d/*": "d/b.py d/bin d/e d/loop", "d/**/c.*": "d/e/c.py d/e/c.txt", "?.py": "a.py", "[ab].py": "a.py", "[!a].py": "",
		"[[]x[]].md": "[x].md", "nope/*": "",
		".*/*.py": ".hidden/x.py", "d/e": "d/e", "**/e/**": "d/e d/e/c.py d/e/c.txt", "ü*": "ümlaut.txt",
		b.workspace + "/d/*.py": "d/b.py", "*.{py,md}": "", "[z": "", "d*e": "",
	} {
		files, more, err := b.Glob(ctx, pattern, 0)
		got := []string{}
		for _, f := range files {
			got = append(got, f.Path)
		}
		if strings.Join(got, " ") != want || more || err != nil {
			t.Errorf("glob %s: %v %t %v, want %s", pattern, got, more, err, want)
		}
	}
	if files, more, err := b.Glob(ctx, "**", 3); len(files) != 3 || !more || err != nil {
		t.Errorf("glob of at most 3: %d, %t, %v", len(files), more, err)
	}
	for _, tc := range []struct {
		q    agent.GrepQuery
		want string
	}{
		{agent.GrepQuery{Pattern: `print\(`}, "a.py:2:print(1) d/b.py:1:print(2)"},
		{agent.GrepQuery{Pattern: `^PRINT\(`, IgnoreCase: true}, "a.py:2:print(1) d/b.py:1:print(2) d/b.py:2:Print(3)"},
		{agent.GrepQuery{Pattern: `print`, Glob: "*.txt"}, "d/e/c.txt:1:print me"},
		{agent.GrepQuery{Pattern: `print`, Path: "d", Glob: "e/*.py"}, "d/e/c.py:1:x = 'print'"},
		{agent.GrepQuery{Pattern: `print`, Path: "a.py"}, "a.py:2:print(1)"},
		{agent.GrepQuery{Pattern: `(?i)GRÜSSE|grüße`}, "ümlaut.txt:1:grüße"},
		{agent.GrepQuery{Pattern: `nothing`}, ""},
	} {
		matches, more, err := b.Grep(ctx, tc.q)
		got := []string{}
		for _, m := range matches {
			got = append(got, fmt.Sprintf("%s:%d:%s", m.Path, m.Line, m.Text))
		}
		if strings.Join(got, " ") != tc.want || more || err != nil {
			t.Errorf("%+v: %v %t %v", tc.q, got, more, err)
		}
	}
	if m, _, err := b.Grep(ctx, agent.GrepQuery{Pattern: "print$", Path: "long"}); err != nil || len(m) != 1 ||
		len(m[0].Text) != 500 {
		t.Errorf("a long line: %+v, %v", m, err)
	}
	if m, more, err := b.Grep(ctx, agent.GrepQuery{Pattern: "print", Max: 2}); err != nil || len(m) != 2 || !more {
		t.Errorf("at most 2: %+v, %t, %v", m, more, err)
	}
	if _, _, err := b.Grep(ctx, agent.GrepQuery{Pattern: "("}); codeOf(err) != "invalid" {
		t.Errorf("no regular expression: %v", err)
	}
}

func TestEditReplacesExactlyWhatIsMeant(t *testing.T) {
	b := start(t)
	b.write(t, "bin", "\xff\xfe")
	b.shell(t, "printf 'one\\ntwo\\ntwo\\n' > f; chmod 755 f; mkdir d")
	for _, tc := range []struct {
		path, old, new string
		all            bool
		code           string
		n              int
		after          string
	}{
		{"f", "three", "x", false, "no_match", 0, "one\ntwo\ntwo\n"},
		{"f", "two", "x", false, "ambiguous", 0, "one\ntwo\ntwo\n"},
		{"f", "", "x", false, "invalid", 0, "one\ntwo\ntwo\n"},
		{"f", "one", "one", false, "invalid", 0, "one\ntwo\ntwo\n"},
		{"f", "one\n", "1\nü\n", false, "", 1, "1\nü\ntwo\ntwo\n"},
		{"f", "two", "2", true, "", 2, "1\nü\n2\n2\n"},
		{"bin", "x", "y", false, "not_text", 0, ""},
		{"d", "x", "y", false, "is_a_directory", 0, ""},
		{"nope", "x", "y", false, "not_found", 0, ""},
	} {
		n, err := b.Edit(t.Context(), tc.path, tc.old, tc.new, tc.all)
		if n != tc.n || codeOf(err) != tc.code {
			t.Errorf("edit %s %q: %d, %v, want %d %s", tc.path, tc.old, n, err, tc.n, tc.code)
		}
		if tc.after != "" && b.read(t, tc.path) != tc.after {
			t.Errorf("edit %s %q leaves %q", tc.path, tc.old, b.read(t, tc.path))
		}
	}
	if f, err := b.Stat(t.Context(), "f"); err != nil || f.Mode != 0o755 {
		t.Errorf("its mode is %o, %v", f.Mode, err)
	}
}

func TestAWorkspaceMovesToAnotherSandbox(t *testing.T) {
	a := start(t)
	a.shell(t,
		"mkdir -p d/e empty; echo text > d/e/f; chmod 700 d/e/f; touch -d 2020-01-01 d/e/f d/e; ln -s e/f d/l; ln -s "+
			a.workspace+
			"/d abs; echo h > .hidden; head -c 3000000 /dev/urandom > big; mkfifo p")
	var archive bytes.Buffer
	if err := a.Export(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	c := start(t)
	if err := c.Import(t.Context(), bytes.NewReader(archive.Bytes())); err != nil {
		t.Fatal(err)
	}
	look := "rm -f p; find . -type f -o -type l | sort; md5sum big; cat d/l; stat -c '%a %Y' d/e d/e/f; ls -d empty; readlink abs"
	if one, other := a.shell(t, look), c.shell(t, look); one.Stdout.Text != other.Stdout.Text ||
		!strings.Contains(one.Stdout.Text, "700 1577836800") {
		t.Errorf("from\n%s\nto\n%s%s", one.Stdout.Text, other.Stdout.Text, other.Stderr.Text)
	}
	if err := a.Export(t.Context(), failing{}); err == nil || !strings.Contains(err.Error(), "writing the archive") {
		t.Errorf("a writer that fails: %v", err)
	}
	a.works(t)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no") }
func (failing) Read([]byte) (int, error)  { return 0, errors.New("no") }

// An archive from an unknown source can neither leave the workspace nor exceed the agreed
// size.
func TestAnArchiveIsNotTrusted(t *testing.T) {
	b := start(t)
	file := func(path string) string {
		return fmt.Sprintf(`{"p":%s,"k":"f","m":420,"t":0,"s":1}`, jsonOf(path))
	}
	link := func(path, to string) string {
		return fmt.Sprintf(`{"p":%s,"k":"l","m":511,"t":0,"to":%s}`, jsonOf(path), jsonOf(to))
	}
	for name, tc := range map[string]struct {
		heads []string
		code  string
	}{
		"a file":                     {[]string{file("x/y")}, ""},
		"an absolute path":           {[]string{file("/tmp/x")}, "outside"},
		"..":                         {[]string{file("../x")}, "outside"},
		".. inside":                  {[]string{file("a/../../x")}, "outside"},
		"NUL":                        {[]string{file("a\x00b")}, "outside"},
		"nothing":                    {[]string{file("")}, "outside"},
		"a link out":                 {[]string{link("l1", "/etc")}, ""},
		"a link up":                  {[]string{link("d/l2", "../../x")}, ""},
		"a link inside":              {[]string{link("d/l3", "../x")}, ""},
		"through a link":             {[]string{link("l4", "x"), file("l4/f")}, "outside"},
		"through a link out":         {[]string{link("l6", "/tmp"), file("l6/f")}, "outside"},
		"over a link":                {[]string{link("l5", "x/y"), file("l5")}, ""},
		"a device":                   {[]string{`{"p":"dev","k":"b","m":0,"t":0}`}, "invalid"},
		"no JSON":                    {[]string{`{"p":`}, "invalid"},
		"a negative size":            {[]string{`{"p":"n","k":"f","m":420,"t":0,"s":-1}`}, "invalid"},
		"a size beyond all":          {[]string{`{"p":"n","k":"f","m":420,"t":0,"s":99999999999999}`}, "too_large"},
		"a mode with setuid":         {[]string{`{"p":"su","k":"f","m":2541,"t":0,"s":1}`}, ""},
		"a directory of a file":      {[]string{`{"p":"x/y","k":"d","m":493,"t":0}`}, "exists"},
		"a record that is too long":  {[]string{file(strings.Repeat("x", 70000))}, "invalid"},
		"a component that is no dir": {[]string{file("x/y/z")}, "outside"},
	} {
		t.Run(name, func(t *testing.T) {
			var in bytes.Buffer
			in.WriteString("skandha workspace 1\n")
			for _, h := range tc.heads {
				_ = binary.Write(&in, binary.BigEndian, uint32(len(h)))
				in.WriteString(h)
				if strings.Contains(h, `"k":"f"`) {
					in.WriteString("x")
				}
			}
			in.Write(make([]byte, 4))
			b.write(t, "x/y", "y")
			if err := b.Import(t.Context(), &in); codeOf(err) != tc.code {
				t.Errorf("%v, want %q", err, tc.code)
			}
			want := "y"
			if name == "a file" {
				want = "x"
			}
			if got := b.read(t, "x/y"); got != want {
				t.Errorf("x/y is %q, want %q", got, want)
			}
		})
	}
	for name, text := range map[string]string{
		"empty": "", "something else": strings.Repeat("PK", 100), "cut off": "skandha workspace 1\n\x00\x00",
	} {
		if err := b.Import(t.Context(), strings.NewReader(text)); codeOf(err) != "invalid" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Import(t.Context(), io.MultiReader(strings.NewReader("skandha"), failing{})); err == nil ||
		err.Error() != "no" {
		t.Errorf("a reader that fails: %v", err)
	}
	b.works(t)
}

// A full file system is reported, and existing files stay.
func TestAFullWorkspace(t *testing.T) {
	if os.Getuid() != 0 {
		lack(t, "mounting a small file system needs root")
	}
	b := startWith(t,
		options{
			wrap: []string{
				"unshare", "--mount", "sh", "-c",
				`mount -t tmpfs -o size=1m,mode=777 none "$HOME" && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`,
				"sh",
			}, asRoot: true,
		})
	b.write(t, "keep", "kept")
	for what, err := range map[string]error{
		"write":  second(b.Write(t.Context(), "keep", make([]byte, 2<<20), agent.Replace)),
		"append": second(b.Write(t.Context(), "keep", make([]byte, 2<<20), agent.Append)),
	} {
		if codeOf(err) != "no_space" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := b.read(t, "keep"); got != "kept" {
		t.Errorf("the file is %q", got)
	}
	b.shell(t, "head -c 2000000 /dev/zero > full")
	b.works(t)
	if _, err := b.Write(t.Context(), "keep", []byte("new"), agent.Replace); codeOf(err) != "no_space" {
		t.Errorf("write: %v", err)
	}
	if err := b.Remove(t.Context(), "full", false); err != nil {
		t.Errorf("remove: %v", err)
	}
	b.write(t, "keep", "new")
}

// laggard takes its time with each piece.
type laggard struct{ n int64 }

func (l *laggard) Write(p []byte) (int, error) {
	<-time.After(time.Millisecond)
	l.n += int64(len(p))
	return len(p), nil
}

// A slow reader is sent no more than was agreed, whatever the pieces are.
func TestASlowReaderIsWaitedFor(t *testing.T) {
	b := start(t)
	b.python(t, "import os, random", "r = random.Random(1)",
		"for i in range(400):\n with open(f'f{i}', 'wb') as f: f.write(bytes(r.choice((10, 3000, 40000, 70000))))")
	for range 3 {
		var l laggard
		if err := b.Export(t.Context(), &l); err != nil || l.n < 4<<20 {
			t.Fatalf("%d bytes, %v", l.n, err)
		}
	}
	b.works(t)
}

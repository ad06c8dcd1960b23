package sandboxtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// treeProbes make the agent search trees that are hard to search.
func treeProbes() []probe {
	return []probe{
		{
			name: "a directory of 100,000 files", alone: true,
			limits: func(l *driver.Limits) { l.WorkspaceFiles, l.Workspace, l.Memory = 110000, 64<<20, 512<<20 },
			try:    crowdedDirectory,
		},
		{name: "a regular expression that never ends", alone: true, try: endlessRegex},
		{name: "a glob that never ends", alone: true, try: endlessGlob},
		{name: "names that are not UTF-8", alone: true, try: strangeNames},
		{name: "a workspace of chmod 000", alone: true, try: lockedWorkspace},
		{name: "a file that grows while it is read", alone: true, try: growingFile},
		{name: "edit that explodes", alone: true, try: explodingEdit},
	}
}

func crowdedDirectory(a *attempt) (outcome, error) {
	said, err := a.says(`
os.makedirs("many")
n = 0
try:
    while n < 100000:
        os.close(os.open("many/%06d" % n, os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError:
    pass
str(n)`)
	if err != nil {
		return outcome{}, err
	}
	files, listErr := a.List(a.ctx, "many")
	globbed, more, globErr := a.Glob(a.ctx, "**/*", 100)
	if len(globbed) > 100 || globErr == nil && !more {
		return hole("a glob of 100 returns %d of %s, more: %v", len(globbed), said, more)
	}
	if errors.Is(listErr, agent.ErrBroken) || errors.Is(globErr, agent.ErrBroken) || a.ctx.Err() != nil {
		return hole("listing breaks the sandbox: %v, %v", listErr, globErr)
	}
	exportErr := a.Export(a.ctx, new(counter))
	if errors.Is(exportErr, agent.ErrBroken) {
		return hole("exporting breaks the sandbox: %v", exportErr)
	}
	if err := a.Remove(a.ctx, "many", true); err != nil {
		return hole("they cannot be removed: %v", err)
	}
	return bounded("%s files; list: %d (%v), glob: %d, export: %v, removed", said, len(files), listErr, len(globbed),
		exportErr)
}

// endlessRegex searches with a pattern that backtracks exponentially.
func endlessRegex(a *attempt) (outcome, error) {
	if _, err := a.Write(a.ctx, "evil.txt", []byte(strings.Repeat("a", 60)+"!\n"), agent.Create); err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithTimeout(a.ctx, shortRun)
	defer cancel()
	_, _, err := a.Grep(ctx, agent.GrepQuery{Pattern: `^(a+)+$`, Max: 10})
	if err == nil {
		return hole("it was answered")
	}
	return bounded("%v", err)
}

func endlessGlob(a *attempt) (outcome, error) {
	if _, err := a.says(`
p = "/workspace"
for d in range(40):
    p += "/a"
    os.mkdir(p)
    os.symlink("/workspace", p + "/up")
    open(p + "/f", "w").close()
""`); err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithTimeout(a.ctx, 10*shortRun)
	defer cancel()
	files, more, err := a.Glob(ctx, strings.Repeat("**/a*/", 20)+"**/*z*", 100)
	_, _, err2 := a.Glob(ctx, strings.Repeat("*a*", 2000), 100)
	if len(files) > 100 || errors.Is(err, agent.ErrBroken) || errors.Is(err2, agent.ErrBroken) {
		return hole("%d files, %v, %v", len(files), err, err2)
	}
	return bounded("%d files, more: %v (%v, %v)", len(files), more, err, err2)
}

// strangeNames creates names with bytes, quotes, newlines and direction marks; they are
// listed as valid UTF-8, and can be removed with their directory.
func strangeNames(a *attempt) (outcome, error) {
	said, err := a.says(`
os.makedirs(b"odd")
n = 0
for name in (b"\xff\xfe", b"\xc0\xae", b"\xed\xa0\x80", b"new\nline", b"\x1b[31m", "\u202etxt".encode(), b"quote\"'", b"back\\slash", b"-rf", b" ", b"e\xcc\x81", b"\xc3\xa9", b"a" * 255, b"\x01\x7f"):
    try:
        open(b"odd/" + name, "w").close()
        n += 1
    except OSError:
        pass
str(n)`)
	if err != nil {
		return outcome{}, err
	}
	files, err := a.List(a.ctx, "odd")
	if err != nil {
		return hole("listing %s odd names: %v", said, err)
	}
	for _, f := range files {
		if strings.ToValidUTF8(f.Path, "") != f.Path {
			return hole("a name arrives as %q", f.Path)
		}
	}
	if err := errors.Join(a.Export(a.ctx, new(counter)), a.Remove(a.ctx, "odd", true)); err != nil {
		return hole("exporting and removing: %v", err)
	}
	return harmless("%s names created, %d listed as UTF-8, exported and removed", said, len(files))
}

func lockedWorkspace(a *attempt) (outcome, error) {
	said, err := a.says(`
os.makedirs("locked/deeper")
open("locked/deeper/f", "w").close()
for p in ("locked/deeper", "locked", "/workspace"):
    os.chmod(p, 0)
"locked"`)
	if err != nil {
		return outcome{}, err
	}
	_, writeErr := a.Write(a.ctx, "new.txt", []byte("x"), agent.Replace)
	removeErr := a.Remove(a.ctx, "locked", true)
	if _, err := a.shell("chmod 755 /workspace; chmod -R u+rwx /workspace; rm -rf /workspace/*; echo ok > /workspace/ok"); err != nil {
		return hole("after chmod 000 nothing runs: %v", err)
	}
	return harmless("%s; write: %v, remove: %v", said, writeErr, removeErr)
}

// growingFile reads a file while it grows, unless calls wait for each other; the reads are
// made in any case.
func growingFile(a *attempt) (outcome, error) {
	done := make(chan error, 1)
	go func() {
		_, err := a.run(a.ctx,
			agent.Run{
				Kind: agent.Shell, Code: "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done > grows", Timeout: shortRun,
			})
		done <- err
	}()
	reads := 0
	for running := true; running; reads++ {
		data, _, err := a.Read(a.ctx, "grows", 0, 1000)
		if len(data) > 1000 || errors.Is(err, agent.ErrBroken) {
			return hole("reading 1000 bytes: %d, %v", len(data), err)
		}
		var n counter
		if err := a.Export(a.ctx, &n); errors.Is(err, agent.ErrBroken) || int64(n) > 2*a.limits.Workspace {
			return hole("exporting: %d bytes, %v", n, err)
		}
		select {
		case err := <-done:
			if err != nil {
				return outcome{}, err
			}
			running = false
		default:
		}
	}
	return bounded("%d reads and exports", reads)
}

// explodingEdit replaces every letter of a large file with many.
func explodingEdit(a *attempt) (outcome, error) {
	if _, err := a.says(`open("letters", "w").write("a" * (1 << 20)); ""`); err != nil {
		return outcome{}, err
	}
	n, err := a.Edit(a.ctx, "letters", "a", strings.Repeat("b", 1<<16), true)
	if err == nil {
		return hole("64 GiB were written: %d replacements", n)
	}
	if errors.Is(err, agent.ErrBroken) {
		return bounded("the sandbox is broken: %v", err)
	}
	return refused("%v", err)
}

// archiveProbes import archives that no export has written.
func archiveProbes() []probe {
	return []probe{
		{name: "archive slip", alone: true, try: archiveSlip},
		{name: "archive bomb", alone: true, try: archiveBomb},
		{name: "garbage as an archive", alone: true, try: archiveGarbage},
		{name: "export of a full workspace is bounded", alone: true, try: exportBounded},
	}
}

// record returns a record of the agent's archive: a head after its length, and
// the content of a file.
func record(head map[string]any, content string) []byte {
	text, _ := json.Marshal(head) // never fails for strings and numbers
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), content...)
}

func archive(records ...[]byte) io.Reader {
	out := []byte("skandha workspace 1\n")
	for _, r := range records {
		out = append(out, r...)
	}
	return bytes.NewReader(append(out, 0, 0, 0, 0))
}

func file(path, content string) []byte {
	return record(map[string]any{"k": "f", "p": path, "m": 0o6755, "t": 0, "s": len(content)}, content)
}

func link(path, to string) []byte {
	return record(map[string]any{"k": "l", "p": path, "to": to, "m": 0o777, "t": 0}, "")
}

// archiveSlip first imports a valid archive, so that a refusal proves something.
func archiveSlip(a *attempt) (outcome, error) {
	if err := a.Import(a.ctx, archive(file("good.txt", "good"))); err != nil {
		return outcome{}, fmt.Errorf("importing an archive in the agent's format: %w", err)
	}
	if data, _, err := a.Read(a.ctx, "good.txt", 0, 100); err != nil || string(data) != "good" {
		return outcome{}, fmt.Errorf("reading what was imported: %q, %w", data, err)
	}
	if _, err := a.says(layTraps + `""`); err != nil {
		return outcome{}, err
	}
	before, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	const evil = "overwritten"
	count := 0
	for _, records := range [][][]byte{
		{file("../tmp/outside/secret.txt", evil)},
		{file("/tmp/outside/secret.txt", evil)},
		{file("a/../../tmp/outside/secret.txt", evil)},
		{file("trap/dir/secret.txt", evil)},
		{file("trap/rootdir/tmp/outside/new.txt", evil)},
		{file("trap/secret", evil)},
		{file("trap/dangling", evil)},
		{link("hop", "/tmp/outside"), file("hop/secret.txt", evil)},
		{link("hop2", "../tmp/outside"), file("hop2/new.txt", evil)},
		{link("hop3", "trap/dir"), file("hop3/new.txt", evil)},
		{link("x", "."), link("x/y", ".."), file("x/y/tmp/outside/new.txt", evil)},
		{record(map[string]any{"k": "h", "p": "hard", "to": "/etc/passwd", "m": 0o644, "t": 0}, "")},
		{record(map[string]any{"k": "c", "p": "device", "m": 0o644, "t": 0, "major": 1, "minor": 1}, "")},
		{file("nul\x00/../../tmp/outside/new.txt", evil)},
	} {
		if err := a.Import(a.ctx, archive(records...)); err != nil {
			if errors.Is(err, agent.ErrBroken) {
				return hole("the import breaks the sandbox: %v", err)
			}
			count++
		}
	}
	after, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	if before != after {
		return hole("what is outside has changed from %s to %s", before, after)
	}
	said, err := a.says(`" ".join(os.path.join(t, f) for t, _, fs in os.walk("/workspace") for f in fs if os.lstat(os.path.join(t, f)).st_mode & 0o6000)`)
	if err != nil || said != "" {
		return hole("an archive brought setuid files: %s %v", said, err)
	}
	return refused("%d of 14 refused, nothing outside has changed", count)
}

// archiveBomb declares and sends more than the workspace may hold.
func archiveBomb(a *attempt) (outcome, error) {
	huge := record(map[string]any{"k": "f", "p": "huge", "m": 0o644, "t": 0, "s": 1 << 50}, "")
	endless := io.MultiReader(bytes.NewReader([]byte("skandha workspace 1\n")), bytes.NewReader(huge),
		&zeros{left: 4 * a.limits.Workspace})
	errHuge := a.Import(a.ctx, endless)
	var many [][]byte
	for i := range 3 * a.limits.WorkspaceFiles {
		many = append(many, file(fmt.Sprintf("many/%d", i), ""))
	}
	errMany := a.Import(a.ctx, archive(many...))
	var deep [][]byte
	for i := range 200 {
		deep = append(deep, record(map[string]any{"k": "d", "p": strings.Repeat("d/", i) + "d", "m": 0o755, "t": 0}, ""))
	}
	errDeep := a.Import(a.ctx, archive(deep...))
	if errHuge == nil || errMany == nil && a.s.enforces("files") || errDeep == nil {
		return hole("imported were a huge file (%v), too many files (%v), too deep directories (%v)", errHuge, errMany,
			errDeep)
	}
	return refused("%v; %v; %v", errHuge, errMany, errDeep)
}

// zeros is a long stream of zero bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

func archiveGarbage(a *attempt) (outcome, error) {
	for name, r := range map[string]io.Reader{
		"nothing":         strings.NewReader(""),
		"zeros":           &zeros{left: 1 << 20},
		"text":            strings.NewReader(strings.Repeat("garbage ", 1000)),
		"only a magic":    strings.NewReader("skandha workspace 1\n"),
		"a long record":   io.MultiReader(strings.NewReader("skandha workspace 1\n\xff\xff\xff\xff"), &zeros{left: 1 << 20}),
		"a head that is":  archive([]byte("\x00\x00\x00\x02[]")),
		"deep JSON":       archive(append([]byte{0, 0, 0x30, 0}, strings.Repeat("[", 0x3000)...)),
		"a negative size": archive(record(map[string]any{"k": "f", "p": "neg", "m": 0, "t": 0, "s": -1}, "")),
		"a cut file": io.MultiReader(strings.NewReader("skandha workspace 1\n"),
			bytes.NewReader(file("cut", "12345")[:40])),
	} {
		if err := a.Import(a.ctx, r); err == nil || errors.Is(err, agent.ErrBroken) {
			return hole("importing %s: %v", name, err)
		}
	}
	if err := a.answers(a.ctx); err != nil {
		return hole("after garbage: %v", err)
	}
	return refused("all of it")
}

func exportBounded(a *attempt) (outcome, error) {
	said, err := a.says(fmt.Sprintf(`
n, sizes = 0, [1 << 40, 1 << 34, %d]
for size in sizes:
    for _ in range(20):
        fd = os.open("f%%d" %% n, os.O_CREAT | os.O_WRONLY)
        n += attempt(os.ftruncate, fd, size).startswith("done")
        os.close(fd)
str(n)`, a.limits.Workspace))
	if err != nil {
		return outcome{}, err
	}
	var n counter
	err = a.Export(a.ctx, &n)
	if int64(n) > 2*a.limits.Workspace {
		return hole("%d bytes were exported of a workspace of %d", n, a.limits.Workspace)
	}
	return bounded("%s sparse files; %d bytes, %v", said, n, err)
}

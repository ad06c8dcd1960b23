package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/services/sandbox/agent"
)

// A directory outside of the workspace that file operations must not reach.
const (
	outside       = "/tmp/outside"
	outsideSecret = "this-is-outside-the-workspace"
)

// layTraps creates links and odd files in the workspace.
const layTraps = `
import shutil
for p in ("/tmp/outside", "/workspace/trap"):
    shutil.rmtree(p, ignore_errors=True)
os.makedirs("/tmp/outside")
open("/tmp/outside/secret.txt", "w").write("` + outsideSecret + `")
os.makedirs("trap")
os.chdir("trap")
open("inside.txt", "w").write("inside")
os.symlink("/etc/passwd", "passwd")
os.symlink("/tmp/outside/secret.txt", "secret")
os.symlink("../../tmp/outside/secret.txt", "relative")
os.symlink("secret", "chain1"); os.symlink("chain1", "chain2"); os.symlink("chain2", "chain3")
os.symlink("/tmp/outside", "dir"); os.symlink("dir", "dirchain")
os.symlink("..", "up"); os.symlink("../..", "upup"); os.symlink("/", "rootdir")
os.symlink("/proc/self/root", "procroot"); os.symlink("/proc/1/root", "procroot1"); os.symlink("/proc/self/cwd", "proccwd"); os.symlink("/proc/self/fd", "fds")
os.symlink("/tmp/outside/new.txt", "dangling")
os.symlink("loop", "loop")
os.symlink("/dev/zero", "zero"); os.symlink("/dev/stdin", "stdin")
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("sock")
`

// evilPaths lead out of the workspace if they are followed.
var evilPaths = []string{
	"../tmp/outside/secret.txt", "../../../../../../tmp/outside/secret.txt", "trap/../../tmp/outside/secret.txt",
	"./../tmp/outside/secret.txt",
	"/tmp/outside/secret.txt", "//tmp/outside/secret.txt", "/workspace/../tmp/outside/secret.txt",
	"/../tmp/outside/secret.txt", "/etc/passwd", "../etc/passwd",
	"trap/passwd", "trap/secret", "trap/relative", "trap/chain3", "trap/dir/secret.txt", "trap/dirchain/secret.txt",
	"trap/up/../../tmp/outside/secret.txt",
	"trap/upup/tmp/outside/secret.txt", "trap/rootdir/tmp/outside/secret.txt", "trap/rootdir/etc/passwd",
	"trap/procroot/tmp/outside/secret.txt",
	"trap/procroot1/etc/passwd", "trap/proccwd/../tmp/outside/secret.txt",
	"trap/inside.txt/../../../tmp/outside/secret.txt", "/proc/self/root/tmp/outside/secret.txt", "/proc/self/environ",
	"/dev/../tmp/outside/secret.txt", "file:///tmp/outside/secret.txt", "~/../tmp/outside/secret.txt",
}

// nastyPaths are invalid paths, or paths that must be used verbatim.
var nastyPaths = []string{
	"a\x00b", "trap/inside.txt\x00.png", "\x00", strings.Repeat("x", 300), strings.Repeat("x/", 3000),
	strings.Repeat("../", 2000) + "etc/passwd",
	"\u2025/\u2025/etc/passwd", "\uff0e\uff0e/etc/passwd", "..\\..\\etc\\passwd", "..%2f..%2fetc%2fpasswd",
	"%2e%2e/etc/passwd", "\xff\xfe", "\xc0\xae\xc0\xae/etc/passwd",
	"a\nb", "\r", "\x1b[2J", "\u202etxt.exe", "trap/loop", "trap/dangling/x", "trap/inside.txt/x", "trap/fds/0", "...",
	" ", "-rf", "$(id)", "`id`", "*", "trap/sock", "trap/zero", "trap/stdin",
}

// pathProbes use the agent's file operations with hostile paths.
func pathProbes() []probe {
	at := func(paths []string, f func(*attempt, context.Context, string) ([]byte, error)) func(*attempt) (outcome, error) {
		return func(a *attempt) (outcome, error) { return a.atPaths(paths, f) }
	}
	read := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		data, _, err := a.Read(ctx, path, 0, 1<<16)
		return data, err
	}
	write := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		_, err := a.Write(ctx, path, []byte("overwritten"), agent.Replace)
		_, err2 := a.Write(ctx, path, []byte("overwritten"), agent.Append)
		return nil, errors.Join(err, err2)
	}
	edit := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		n, err := a.Edit(ctx, path, "outside", "overwritten", true)
		if n > 0 {
			return []byte(outsideSecret), err
		}
		return nil, err
	}
	look := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		files, err := a.List(ctx, path)
		_, err2 := a.Stat(ctx, path)
		return fmt.Append(nil, files), errors.Join(err, err2)
	}
	change := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		f, err := a.Stat(ctx, path)
		return []byte(f.Target), errors.Join(err, a.Mkdir(ctx, path+"/made"), a.Move(ctx, path, "stolen", true),
			a.Move(ctx, "trap/inside.txt", path, true), a.Remove(ctx, path, true))
	}
	search := func(a *attempt, ctx context.Context, path string) ([]byte, error) {
		files, _, err := a.Glob(ctx, path, 100)
		matches, _, err2 := a.Grep(ctx, agent.GrepQuery{Pattern: "outside-the|root:", Path: path, Max: 10})
		// A glob that returns its own pattern reveals nothing.
		return fmt.Append(nil, len(files) > 0 && strings.Contains(path, "*"), matches), errors.Join(err, err2)
	}
	return []probe{
		{name: "read outside", try: at(evilPaths, read)},
		{name: "write outside", try: at(evilPaths, write)},
		{name: "edit outside", try: at(evilPaths, edit)},
		{name: "list outside", try: at(evilPaths, look)},
		{name: "move, create and remove outside", try: at(evilPaths, change)},
		{
			name: "search outside",
			try: at(append([]string{"../*", "/tmp/outside/*", "trap/dir/*", "trap/rootdir/etc/*", "/**/secret.txt"},
				evilPaths...), search),
		},
		{name: "read nasty names", try: at(nastyPaths, read)},
		{name: "write nasty names", alone: true, try: at(nastyPaths, write)},
		{name: "list and change nasty names", alone: true, try: at(nastyPaths,
			func(a *attempt, ctx context.Context, path string) ([]byte, error) {
				_, err := look(a, ctx, path)
				_, err2 := search(a, ctx, path)
				_, err3 := change(a, ctx, path)
				return nil, errors.Join(err, err2, err3)
			})},
		{name: "the workspace itself", alone: true, try: workspaceItself},
		{name: "hardlinks to the system", try: hardlinks},
		{name: "fifo", try: fifo},
		{name: "swap race", alone: true, try: swapRace},
	}
}

// atPaths performs an operation at each path. Nothing from outside may be returned, nothing
// outside may change, and the agent must answer.
func (a *attempt) atPaths(paths []string, f func(*attempt, context.Context, string) ([]byte, error)) (outcome, error) {
	if _, err := a.says(layTraps + `""`); err != nil {
		return outcome{}, err
	}
	before, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	refusals := 0
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(a.ctx, patience/2)
		data, err := f(a, ctx, path)
		hung := ctx.Err() != nil
		cancel()
		if text := string(data); strings.Contains(text, outsideSecret) || strings.Contains(text, "root:") {
			return hole("at %.200q data from outside is returned: %.200s", path, text)
		}
		if hung || errors.Is(err, agent.ErrBroken) {
			return hole("at %.200q the agent hangs or breaks: %v", path, err)
		}
		if err != nil {
			refusals++
		}
	}
	after, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	if before != after {
		return hole("files outside have changed from %s to %s", before, after)
	}
	return refused("%d of %d paths refused, nothing outside has changed", refusals, len(paths))
}

// outside describes everything outside of the workspace that may be written.
func (a *attempt) outside() (string, error) {
	return a.says(`repr(sorted((p, os.lstat(os.path.join(t, p)).st_size, open(os.path.join(t, p)).read() if os.path.isfile(os.path.join(t, p)) else "") for t, ds, fs in os.walk("` + outside + `") for p in ds + fs)) + str(os.stat("/etc/passwd").st_size) + repr(sorted(os.listdir("/tmp")))`)
}

// workspaceItself checks that the workspace may be emptied, but not removed or moved.
func workspaceItself(a *attempt) (outcome, error) {
	var errs []error
	for _, path := range []string{".", "", "/", "/workspace", "./.", "x/.."} {
		ctx, cancel := context.WithTimeout(a.ctx, patience/2)
		errs = append(errs, a.Remove(ctx, path, true), a.Move(ctx, path, "elsewhere", true))
		cancel()
	}
	if _, err := a.Write(a.ctx, "still.txt", []byte("here"), agent.Create); err != nil {
		return hole("the workspace cannot be written to any more: %v (%v)", err, errs)
	}
	said, err := a.says(`os.getcwd() + " " + open("/workspace/still.txt").read()`)
	if err != nil || said != "/workspace here" {
		return hole("the workspace is %q (%v)", said, err)
	}
	return refused("%v", errors.Join(errs...))
}

func hardlinks(a *attempt) (outcome, error) {
	return a.mustRefuse(`attempt(os.link, "/etc/passwd", "/workspace/hard")`, "EXDEV", "EPERM", "EACCES", "EROFS")
}

// fifo checks fifos without a peer, whose open blocks forever.
func fifo(a *attempt) (outcome, error) {
	if _, err := a.says(layTraps + `""`); err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithTimeout(a.ctx, patience/2)
	defer cancel()
	_, _, readErr := a.Read(ctx, "trap/fifo", 0, 100)
	_, writeErr := a.Write(ctx, "trap/fifo", []byte("x"), agent.Replace)
	_, editErr := a.Edit(ctx, "trap/fifo", "a", "b", false)
	_, _, grepErr := a.Grep(ctx, agent.GrepQuery{Pattern: "x", Path: "trap"})
	exportErr := a.Export(ctx, new(counter))
	if ctx.Err() != nil {
		return hole("a fifo hangs: read %v, write %v, edit %v, grep %v, export %v", readErr, writeErr, editErr, grepErr,
			exportErr)
	}
	if readErr == nil || editErr == nil {
		return hole("a fifo was read (%v) or edited (%v)", readErr, editErr)
	}
	return refused("%v", readErr)
}

// swapRace runs code that changes a directory into a link and back as fast as it can, while
// the service reads and writes below it.
func swapRace(a *attempt) (outcome, error) {
	if _, err := a.says(layTraps + `
os.mkdir("swap"); open("swap/secret.txt", "w").write("inside"); os.symlink("/tmp/outside", "link"); ""`); err != nil {
		return outcome{}, err
	}
	before, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	var stopped atomic.Bool
	raced := make(chan error, 1)
	began := make(chan struct{})
	tell := sync.OnceFunc(func() { close(began) })
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	go func() {
		defer tell()
		defer stopped.Store(true)
		exit, err := a.run(ctx,
			agent.Run{Kind: agent.Python, Code: prelude + swapper, Output: func(agent.Stream, []byte) { tell() }})
		if err == nil && exit.Code != 0 && !exit.Stopped {
			err = fmt.Errorf("the swapper ended with %d: %s", exit.Code, tail(exit.Stderr.Text))
		}
		raced <- err
	}()
	<-began
	ops, during, inside := 0, 0, 0
	for end := time.Now().Add(3 * time.Second); ops < 1000 && !stopped.Load() &&
		(time.Now().Before(end) || during < 20); ops++ {
		data, _, err := a.Read(a.ctx, "trap/swap/secret.txt", 0, 100)
		if strings.Contains(string(data), outsideSecret) {
			return hole("after %d operations a read has left the workspace", ops)
		}
		if err == nil {
			inside++
		}
		// it may lose the race, not win it outside
		_, _ = a.Write(a.ctx, "trap/swap/written.txt", []byte("overwritten"), agent.Replace)
		_ = a.Remove(a.ctx, "trap/swap/secret.txt.old", false)
		_ = a.Move(a.ctx, "trap/swap/written.txt", "trap/swap/moved.txt", true)
		if !stopped.Load() {
			during++
		}
	}
	cancel()
	if err := <-raced; err != nil && !errors.Is(err, context.Canceled) {
		return outcome{}, err
	}
	after, err := a.outside()
	if err != nil {
		return outcome{}, err
	}
	if before != after {
		return hole("files outside have changed from %s to %s", before, after)
	}
	if during < 20 {
		return outcome{}, fmt.Errorf("%d rounds of %d while it swapped are no race", during, ops)
	}
	return refused("%d rounds, %d while it swapped, %d reads inside, none outside", ops, during, inside)
}

// swapper swaps with one system call, so that the name always exists.
const swapper = `
os.chdir("/workspace/trap")
print("on", flush=True)
while True:
    for _ in range(1000):
        syscall(316, -100, b"swap", -100, b"link", 2)
        syscall(316, -100, b"link", -100, b"swap", 2)
`

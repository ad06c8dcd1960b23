package filesystem

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// Limits bound what the file tools may write, with the tags of github.com/alecthomas/kong. 0 is the
// default, -1 no limit.
type Limits struct {
	SessionBytes int64 `env:"SKANDHA_FILES_SESSION_BYTES" default:"0" placeholder:"BYTES" help:"Limit of bytes that file tools write for one session while the tool runner runs. 0: 268435456 (256 MiB), -1: no limit."`
	SessionFiles int   `env:"SKANDHA_FILES_SESSION_FILES" default:"0" placeholder:"N" help:"Limit of files and directories that they create for one session while the tool runner runs. 0: 1000, -1: no limit."`
	KeepFree     int64 `env:"SKANDHA_FILES_KEEP_FREE" default:"0" placeholder:"BYTES" help:"Space that they leave free on the disk of the workspace. 0: 67108864 (64 MiB), -1: none."`

	Instructions Instructions `env:"SKANDHA_FILES_INSTRUCTIONS" enum:"read,write,off" default:"read" help:"Files AGENTS.md and the folder skills of the workspace, which instruct the agents of every session. read: they are read, and file tools cannot change them. write: they can. off: they are not read."`
}

// The defaults.
const (
	defaultSessionBytes = 256 << 20
	defaultSessionFiles = 1000
	defaultKeepFree     = 64 << 20
)

func (l Limits) withDefaults() Limits {
	return Limits{
		cmp.Or(l.SessionBytes, defaultSessionBytes), cmp.Or(l.SessionFiles, defaultSessionFiles),
		cmp.Or(l.KeepFree, defaultKeepFree), cmp.Or(l.Instructions, InstructionsRead),
	}
}

// Validate reports invalid values; each error names the flag.
func (l Limits) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
	}{{"session-bytes", l.SessionBytes}, {"session-files", int64(l.SessionFiles)}, {"keep-free", l.KeepFree}} {
		if f.value < -1 {
			errs = append(errs,
				fmt.Errorf("--files-%s is %d, want a positive number, 0 for the default, or -1 for no limit", f.name, f.value))
		}
	}
	switch l.Instructions {
	case "", InstructionsRead, InstructionsWrite, InstructionsOff:
	default:
		errs = append(errs, fmt.Errorf("--files-instructions is %q, want read, write or off", l.Instructions))
	}
	return errors.Join(errs...)
}

// maxCounted is how many sessions are counted; each further one replaces another.
const maxCounted = 100_000

// quota counts what sessions have written.
type quota struct {
	Limits
	root *os.Root

	mu   sync.Mutex
	used map[subject.Ref]usage
}

type usage struct {
	bytes int64
	files int
}

func newQuota(root *os.Root, l Limits) *quota {
	return &quota{Limits: l.withDefaults(), root: root, used: map[subject.Ref]usage{}}
}

// limited enforces the quota on a tool that writes. What it does not write in the end
// is returned to the quota.
func (q *quota) limited(t tools.Tool) tools.Tool {
	run := t.Run
	t.Run = func(ctx context.Context, c tools.Call) tool.Result {
		var args struct {
			Path    string `json:"path"`
			Content string `json:"content"`
		}
		if json.Unmarshal(c.Args, &args) != nil {
			return run(ctx, c) // the tool reports the error
		}
		takes := usage{bytes: int64(len(args.Content)), files: q.missing(args.Path)}
		ref := subject.Ref{Agent: c.Agent, Session: c.Session}
		err := q.free(takes.bytes)
		if err == nil {
			err = q.take(ref, takes)
		}
		if err != nil {
			return tools.Fail(explain("writing", args.Path, err))
		}
		r := run(ctx, c)
		if !r.Success { // parent directories may have been created
			takes.files = q.missing(args.Path)
			q.giveBack(ref, takes)
		}
		return r
	}
	return t
}

// missing counts the file and its parent directories that do not exist.
func (q *quota) missing(path string) (n int) {
	p, err := clean(path)
	if err != nil {
		return 0
	}
	for ; p != "."; p = filepath.Dir(p) {
		if _, err := q.root.Lstat(p); err == nil {
			break
		}
		n++
	}
	return n
}

// free refuses a write that would leave too little space on the disk.
func (q *quota) free(bytes int64) error {
	if q.KeepFree < 0 {
		return nil
	}
	dir, err := q.root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &disk); err != nil {
		return err
	}
	if left := int64(disk.Bavail)*disk.Bsize - bytes; left < q.KeepFree { //nolint:gosec // a size
		return fmt.Errorf("it would leave %d bytes free on the disk, but --files-keep-free (SKANDHA_FILES_KEEP_FREE) is %d",
			max(left, 0), q.KeepFree)
	}
	return nil
}

// take counts what a session is about to write.
func (q *quota) take(ref subject.Ref, u usage) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.used[ref]
	now.bytes += u.bytes
	now.files += u.files
	switch {
	case q.SessionBytes >= 0 && now.bytes > q.SessionBytes:
		return fmt.Errorf("this session would exceed its limit: %d bytes written, "+
			"--files-session-bytes (SKANDHA_FILES_SESSION_BYTES) is %d", now.bytes, q.SessionBytes)
	case q.SessionFiles >= 0 && now.files > q.SessionFiles:
		return fmt.Errorf("this session would exceed its limit: %d files created, "+
			"--files-session-files (SKANDHA_FILES_SESSION_FILES) is %d", now.files, q.SessionFiles)
	}
	if _, known := q.used[ref]; !known && len(q.used) >= maxCounted {
		for some := range q.used {
			delete(q.used, some)
			break
		}
	}
	q.used[ref] = now
	return nil
}

func (q *quota) giveBack(ref subject.Ref, u usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.used[ref]
	now.bytes -= u.bytes
	now.files -= u.files
	q.used[ref] = now
}

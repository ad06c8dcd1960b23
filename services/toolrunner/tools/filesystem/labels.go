package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/internal/executor"
)

// LabelsDir is the folder, in the root, in which the file tools keep the labels of texts from outside.
// No tool reaches it.
const LabelsDir = ".skandha"

var (
	indexFile = filepath.Join(LabelsDir, "labels.json")
	lockFile  = filepath.Join(LabelsDir, "lock")
)

// The bounds of the index. Beyond them, whole folders have the labels of what is in them.
const (
	maxLabelled   = 10_000  // paths
	maxIndexBytes = 4 << 20 // of paths and labels
)

// ownDir reports whether a clean path is the folder of the labels, or below it. Some disks ignore case.
func ownDir(p string) bool {
	first, _, _ := strings.Cut(filepath.ToSlash(p), "/")
	return strings.EqualFold(first, LabelsDir)
}

// labels keeps, for all runners of a workspace, which labels the texts of its files have: those of the
// calls that wrote them. A file has at no time fewer labels than its text.
type labels struct{ root *os.Root }

// index has the labels by path, with slashes; a path that ends in a slash is that of a folder, with
// everything below it, and "/" the workspace.
type index struct {
	Paths map[string][]string `json:"paths"`
}

// effect is what a change does to the text that a file had.
type effect int

const (
	creates  effect = iota // there was none, or it stays as it is
	adds                   // it stays; even a change that fails may have added something
	replaces               // it is gone
)

// change runs f, which changes a file after texts from outside.
func (x *labels) change(ctx context.Context, p string, after []string, how effect, f func() error) error {
	p = filepath.ToSlash(p)
	if len(after) == 0 {
		if how != replaces {
			return f()
		}
		had, err := x.load()
		if err != nil {
			return err
		}
		if _, listed := had.Paths[p]; !listed {
			return f() // another call that adds labels meanwhile leaves them
		}
	}
	release, err := x.lock(ctx, true)
	if err != nil {
		return err
	}
	defer release()
	before, err := x.load()
	if err != nil {
		return err
	}
	during := before.with(p, executor.AddLabels(before.Paths[p], after...))
	during.shrink(x.root, p)
	if err := x.save(before, during); err != nil {
		return keeping(err)
	}
	end := during
	switch err = f(); {
	case err != nil && how != adds:
		end = before
	case err == nil && how == replaces && during.Paths[p] != nil:
		end = during.with(p, after)
	}
	_ = x.save(during, end) // without it, the file has more labels than its text
	return err
}

// reading runs read, which reads a file or lists a folder, and returns the labels of what it has read.
// read may run again.
func (x *labels) reading(ctx context.Context, name string, read func() error) ([]string, error) {
	p, err := clean(name)
	if err != nil {
		return nil, err
	}
	release, err := x.lock(ctx, false)
	unlocked := errors.Is(err, fs.ErrNotExist) // no text from outside was written yet
	if err != nil && !unlocked {
		return nil, err
	}
	if !unlocked {
		defer release()
	}
	if err := read(); err != nil {
		return nil, err
	}
	if _, err := x.root.Lstat(lockFile); unlocked && err == nil {
		return x.reading(ctx, name, read)
	}
	had, err := x.load()
	if err != nil {
		return nil, err
	}
	return had.of(x.root, filepath.ToSlash(p)), nil
}

// keeping returns an error of the index, which explain cannot take for one of the file.
func keeping(err error) error {
	return errors.New("keeping track of texts from outside: " + err.Error())
}

// lockRetry is the interval at which a lock is tried.
const lockRetry = 5 * time.Millisecond

// lock waits until no other call of any runner changes the index or, to change it, reads. To read, it
// returns [fs.ErrNotExist] if there is no index yet.
func (x *labels) lock(ctx context.Context, exclusive bool) (release func(), err error) {
	flag, how := os.O_RDONLY, unix.LOCK_SH
	if exclusive {
		flag, how = os.O_RDWR|os.O_CREATE, unix.LOCK_EX
		if err := x.prepare(); err != nil {
			return nil, keeping(err)
		}
	}
	f, err := x.root.OpenFile(lockFile, flag|opening, 0o600)
	switch {
	case err != nil && !exclusive && errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, keeping(err)
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, keeping(fmt.Errorf("locking %s: %w", filepath.ToSlash(lockFile), err))
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("other calls are writing into the workspace: %w; try again", ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

// prepare makes the folder of the labels.
func (x *labels) prepare() error {
	err := x.root.Mkdir(LabelsDir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(x.root, ".")
}

func (x *labels) load() (index, error) {
	b, err := x.root.ReadFile(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return index{map[string][]string{}}, nil
	}
	var out index
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err == nil && out.Paths == nil {
		err = errors.New("paths is missing")
	}
	if err != nil {
		return index{}, keeping(fmt.Errorf("%s of the workspace must be repaired by hand: %w", filepath.ToSlash(indexFile), err))
	}
	return out, nil
}

// save replaces the index in one step, if it has changed, and returns once that is on the disk.
func (x *labels) save(was, now index) error {
	if maps.EqualFunc(was.Paths, now.Paths, slices.Equal) {
		return nil
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	temp, err := writeTemp(x.root, indexFile, b, 0o600)
	if err != nil {
		return err
	}
	if err := x.root.Rename(temp, indexFile); err != nil {
		_ = x.root.Remove(temp)
		return err
	}
	return syncDir(x.root, LabelsDir)
}

// with returns a copy in which the path has these labels.
func (i index) with(p string, after []string) index {
	out := index{maps.Clone(i.Paths)}
	if out.Paths[p] = after; len(after) == 0 {
		delete(out.Paths, p)
	}
	return out
}

// shrink makes room for a path that was added: first by paths that are gone, then by folders.
func (i index) shrink(root *os.Root, added string) {
	if !i.full() {
		return
	}
	for p := range i.Paths {
		if _, err := root.Lstat(p); p != added && !strings.HasSuffix(p, "/") && errors.Is(err, fs.ErrNotExist) {
			delete(i.Paths, p)
		}
	}
	i.shrinkTo(added)
}

// shrinkTo lists folders of a path instead of the paths in them, as many as it takes.
func (i index) shrinkTo(added string) {
	for dir := path.Dir(added); i.full(); dir = path.Dir(dir) {
		folder := dir + "/"
		if dir == "." {
			folder = "/"
		}
		var after []string
		for _, p := range slices.Sorted(maps.Keys(i.Paths)) {
			if covers(folder, p) {
				after = executor.AddLabels(after, i.Paths[p]...)
				delete(i.Paths, p)
			}
		}
		i.Paths[folder] = after
		if dir == "." {
			return
		}
	}
}

func (i index) full() bool {
	size := 0
	for p, after := range i.Paths {
		size += len(p)
		for _, label := range after {
			size += len(label)
		}
	}
	return len(i.Paths) > maxLabelled || size > maxIndexBytes
}

// of returns the labels of a file's text, under all its names, or of the names in a folder.
func (i index) of(root *os.Root, p string) (after []string) {
	if len(i.Paths) == 0 {
		return nil
	}
	folder := p + "/"
	if p == "." {
		folder = "/"
	}
	info, err := root.Stat(p)
	several := err == nil && linked(info)
	for _, k := range slices.Sorted(maps.Keys(i.Paths)) {
		if strings.EqualFold(k, p) || covers(k, p) || covers(folder, k) || several && same(root, k, info) {
			after = executor.AddLabels(after, i.Paths[k]...)
		}
	}
	return after
}

// covers reports whether a path is below a folder, or the folder itself. Some disks ignore case.
func covers(folder, p string) bool {
	return folder == "/" || strings.HasSuffix(folder, "/") && len(p) >= len(folder) && strings.EqualFold(p[:len(folder)], folder)
}

func same(root *os.Root, name string, info fs.FileInfo) bool {
	other, err := root.Stat(name)
	return err == nil && os.SameFile(info, other)
}

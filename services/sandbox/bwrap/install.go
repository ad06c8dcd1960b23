//go:build linux

package bwrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/services/sandbox/driver"
)

const (
	noPip = "the host's Python has no pip; Debian and Ubuntu: apt install python3-pip"

	keptLines = 200      // of an installation's output
	maxLine   = 16 << 10 // bytes; longer ones are cut
	sizeEvery = 250 * time.Millisecond
)

// Install implements driver.Driver. The network is the host's.
func (d *Driver) Install(ctx context.Context, in driver.Install) error {
	switch {
	case !goodSet.MatchString(in.ID):
		return fmt.Errorf("installing packages: id %q: want %s", in.ID, goodSet)
	case len(in.Args) == 0:
		return errors.New("installing packages: args are empty")
	case in.MaxBytes <= 0:
		return fmt.Errorf("installing packages: max_bytes is %d, want more than 0", in.MaxBytes)
	case d.sets.there(in.ID):
		return nil
	}
	h, err := d.look(ctx)
	if err != nil {
		return err
	}
	if h.noSets != nil {
		return h.noSets
	}
	if !h.python.pip {
		return unavailable(noPip)
	}
	if err := d.install(ctx, h, in); err != nil {
		return fmt.Errorf("installing package set %s: %w", in.ID, err)
	}
	return nil
}

// install installs the packages into a directory that is not a set yet.
func (d *Driver) install(ctx context.Context, h *host, in driver.Install) (err error) {
	done, err := d.beginInstall()
	if err != nil {
		return err
	}
	defer done()
	half, err := os.MkdirTemp(d.sets.dir, ".new-"+d.lease.instance+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeTree(half)) }()
	set, tmp := filepath.Join(half, "set"), filepath.Join(half, "tmp")
	uid := uint32(0)
	if d.root {
		if uid = d.uids.take(); uid == 0 {
			return fmt.Errorf("all %d user ids are in use", d.cfg.UIDs)
		}
		defer d.uids.give(uid)
	}
	if err := os.Chmod(half, 0o755); err != nil { //nolint:gosec // the sandbox's user passes through
		return err
	}
	for _, dir := range []string{set, tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // sandboxes' users read it
			return err
		}
		if d.root {
			if err := os.Chown(dir, int(uid), int(uid)); err != nil {
				return err
			}
		}
	}
	if err := d.runInstaller(ctx, h, in, launch{
		name: "install-" + filepath.Base(half)[len(".new-"):], args: in.Args, limits: installLimits(), uid: uid,
		fileSize: in.MaxBytes,
		mounts:   []string{"--bind", set, driver.Packages, "--bind", tmp, driver.Tmp}, network: true, errors: true,
	}, half); err != nil {
		return err
	}
	bytes, err := seal(set, d.root)
	if err != nil {
		return err
	}
	if bytes > in.MaxBytes {
		return tooLarge(nil, in.MaxBytes)
	}
	return d.sets.publish(in.ID, set, bytes)
}

// installLimits suit pip, which unpacks wheels without loading whole ones into memory.
func installLimits() driver.Limits {
	l := driver.DefaultLimits()
	l.Memory, l.Workspace = 2<<30, 16<<20
	return l
}

// runInstaller runs the installer until it ends.
func (d *Driver) runInstaller(ctx context.Context, h *host, in driver.Install, o launch, half string) error {
	b, err := d.launch(h, o)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, b.kill)
	defer stop()
	large := make(chan bool, 1)
	go func() { large <- b.outgrows(half, in.MaxBytes) }()
	_ = b.stdin.Close() // no input
	kept := b.lines(in.Output)
	<-b.done
	b.closePipes()
	outgrown := <-large
	switch {
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), b.left)
	case b.left != nil:
		return b.left
	case outgrown:
		return tooLarge(kept, in.MaxBytes)
	case errors.Is(b.err, errExit) && b.exit == 0:
		return nil
	case errors.Is(b.err, errExit):
		return &driver.InstallError{Output: kept}
	}
	return b.err
}

func tooLarge(kept []string, bytes int64) error {
	return &driver.InstallError{Output: append(kept, fmt.Sprintf("the packages are larger than %d bytes", bytes))}
}

// lines forwards the installer's output, and keeps the last lines.
func (b *sandbox) lines(output func(string)) (kept []string) {
	r := bufio.NewReaderSize(b, maxLine)
	for {
		piece, err := r.ReadSlice('\n')
		line := strings.ToValidUTF8(strings.TrimRight(string(piece), "\r\n"), "\uFFFD")
		if len(piece) > 0 {
			if output != nil {
				output(line)
			}
			if kept = append(kept, line); len(kept) > keptLines {
				kept = kept[1:]
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return kept
		}
	}
}

// outgrows ends the sandbox if it writes too much, and reports that.
func (b *sandbox) outgrows(dir string, bytes int64) bool {
	tick := time.NewTicker(sizeEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.done:
			return false
		case <-tick.C:
			// Wheels and their unpacked files exist at the same time.
			if size(dir) > 2*bytes {
				b.kill()
				return true
			}
		}
	}
}

// size counts the bytes of a tree that may change concurrently.
func size(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// seal makes a tree readable for all and writable for the service only, and returns its
// size. It refuses everything except files, directories and links.
func seal(dir string, root bool) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if root {
			if err := os.Lchown(path, 0, 0); err != nil {
				return err
			}
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		switch {
		case info.Mode().IsRegular():
			bytes += info.Size()
			if info.Mode()&0o111 != 0 {
				mode = 0o755
			}
		case info.IsDir():
			mode = 0o755
		case info.Mode()&fs.ModeSymlink != 0:
			return nil
		default:
			return fmt.Errorf("%s is neither file, directory nor link", filepath.Base(path))
		}
		return os.Chmod(path, mode)
	})
	return bytes, err
}

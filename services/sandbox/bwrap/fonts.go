//go:build linux

package bwrap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/services/sandbox/driver"
)

const (
	fontsWithin = 8 * time.Second
	maxFontList = 4 << 20 // bytes
)

// listFonts prints the name of matplotlib's font list, and the list.
const listFonts = `import glob, os, matplotlib.font_manager
file, = glob.glob(os.path.join(matplotlib.get_cachedir(), "fontlist-v*.json"))
print(os.path.basename(file))
print(open(file).read(), end="", flush=True)
`

// fontLists returns the files that matplotlib would otherwise build in each sandbox before
// its first plot. They are built once and kept in the user's cache, or else in Config.Dir.
func (d *Driver) fontLists(ctx context.Context, h *host) []string {
	if h.python.matplotlib == "" {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "skandha")
	} else {
		cache = d.cfg.Dir
	}
	key := sha256.New()
	for _, path := range []string{
		h.python.path, h.python.matplotlib, "/usr/share/fonts", "/usr/local/share/fonts", "/etc/fonts",
	} {
		info, err := os.Stat(path)
		if err != nil {
			continue // not part of the key
		}
		fmt.Fprintln(key, path, info.ModTime().UnixNano())
	}
	dir := filepath.Join(cache, fmt.Sprintf("fonts-%.16x", key.Sum(nil)))
	if lists := listed(dir); len(lists) > 0 {
		return lists
	}
	ctx, cancel := context.WithTimeout(ctx, fontsWithin)
	defer cancel()
	if err := d.makeFontList(ctx, h, dir); err != nil {
		d.log.Warn("cannot build matplotlib's font list; each sandbox builds it before its first plot", "error", err)
	}
	return listed(dir)
}

func listed(dir string) []string {
	lists, _ := filepath.Glob(filepath.Join(dir, "fontlist-v*.json")) // the pattern is valid
	return lists
}

// makeFontList builds the list in a sandbox, which sees the fonts that all sandboxes see.
func (d *Driver) makeFontList(ctx context.Context, h *host, dir string) error {
	b, err := d.launch(h, launch{name: "fonts", args: []string{"-I", "-c", listFonts}, limits: driver.DefaultLimits()})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, b.kill)
	defer stop()
	text, err := io.ReadAll(io.LimitReader(b, maxFontList))
	<-b.done
	b.closePipes()
	name, list, ok := strings.Cut(string(text), "\n")
	switch {
	case err != nil:
		return err
	case b.left != nil:
		return b.left
	case !errors.Is(b.err, errExit) || b.exit != 0 || !ok || len(text) == maxFontList:
		return errors.Join(errors.New("matplotlib did not build it"), b.err, ctx.Err())
	}
	if ok, _ := filepath.Match("fontlist-v*.json", name); !ok { // the pattern is valid
		return fmt.Errorf("matplotlib named it %q", name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(list)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
